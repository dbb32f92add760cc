// The time with an offset of whole seconds, which the file that CLOCK_OFFSET names has.
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void begin(void) {
  offset = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, open(getenv("CLOCK_OFFSET"), O_RDONLY), 0);
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  tv->tv_sec = now.tv_sec + *offset;
  tv->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *t) {
  struct timeval now;
  gettimeofday(&now, NULL);
  if (t) *t = now.tv_sec;
  return now.tv_sec;
}
