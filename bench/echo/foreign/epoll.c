// The echo server as a loop on epoll in C: the floor, beside which the others are measured.
// It has no timeouts, no limits and no handlers. Each loop is a thread with a listener of its own.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEADER = 4, ROOM = 256 << 10, EVENTS = 256 };

// A conn keeps the part of a frame that has come, and the output that the socket has not taken.
struct conn {
	int fd;
	char *in, *out;
	size_t have, size, pending, sent;
};

static void fail(const char *what) {
	perror(what);
	exit(1);
}

static int listener(struct sockaddr_in *addr) {
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	socklen_t size = sizeof *addr;
	setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one);
	if (fd < 0 || bind(fd, (struct sockaddr *)addr, size) || listen(fd, 4096) || getsockname(fd, (struct sockaddr *)addr, &size))
		fail("listen");
	return fd;
}

static void watch(int ep, int op, struct conn *c, uint32_t events) {
	struct epoll_event ev = {.events = events, .data.ptr = c};
	epoll_ctl(ep, op, c->fd, &ev);
}

static void end(struct conn *c) {
	close(c->fd);
	free(c->in);
	free(c->out);
	free(c);
}

// whole returns how many bytes at the start of b are whole frames.
static size_t whole(const char *b, size_t n) {
	size_t used = 0;
	while (n - used >= HEADER) {
		uint32_t length;
		memcpy(&length, b + used, HEADER);
		size_t frame = HEADER + (size_t)ntohl(length);
		if (n - used < frame)
			break;
		used += frame;
	}
	return used;
}

// answer sends n bytes, and keeps what the socket does not take. It returns 0 if the socket failed.
static int answer(int ep, struct conn *c, const char *b, size_t n) {
	ssize_t sent = n ? send(c->fd, b, n, MSG_NOSIGNAL) : 0;
	if (sent < 0 && errno != EAGAIN)
		return 0;
	if (sent < 0)
		sent = 0;
	if ((size_t)sent < n) {
		c->pending = n - sent, c->sent = 0;
		c->out = realloc(c->out, c->pending);
		memcpy(c->out, b + sent, c->pending);
		watch(ep, EPOLL_CTL_MOD, c, EPOLLOUT); // no input until the output has gone
	}
	return 1;
}

// readable reads once and echoes the whole frames. It returns 0 when the connection is over.
static int readable(int ep, struct conn *c, char *buf) {
	char *b = buf;
	ssize_t n;
	if (!c->have) {
		n = recv(c->fd, buf, ROOM, 0);
	} else {
		if (c->size - c->have < ROOM / 4)
			c->in = realloc(c->in, c->size = c->size * 2 + ROOM);
		n = recv(c->fd, c->in + c->have, c->size - c->have, 0);
		b = c->in;
	}
	if (n <= 0)
		return n < 0 && errno == EAGAIN;
	size_t have = c->have + n, used = whole(b, have);
	int ok = answer(ep, c, b, used);
	c->have = have - used;
	if (c->have) {
		if (b == buf && c->size < c->have)
			c->in = realloc(c->in, c->size = c->have + ROOM);
		memmove(c->in, b + used, c->have);
	}
	return ok;
}

static int writable(int ep, struct conn *c) {
	ssize_t n = send(c->fd, c->out + c->sent, c->pending - c->sent, MSG_NOSIGNAL);
	if (n < 0)
		return errno == EAGAIN;
	if ((c->sent += n) == c->pending) {
		free(c->out);
		c->out = NULL;
		watch(ep, EPOLL_CTL_MOD, c, EPOLLIN);
	}
	return 1;
}

static void *loop(void *arg) {
	int ln = (int)(intptr_t)arg, ep = epoll_create1(0), one = 1;
	char *buf = malloc(ROOM);
	struct epoll_event evs[EVENTS];
	struct conn door = {.fd = ln};
	watch(ep, EPOLL_CTL_ADD, &door, EPOLLIN);
	for (;;) {
		int n = epoll_wait(ep, evs, EVENTS, -1);
		for (int i = 0; i < n; i++) {
			struct conn *c = evs[i].data.ptr;
			if (c == &door) {
				int fd = accept4(ln, NULL, NULL, SOCK_NONBLOCK);
				if (fd < 0)
					continue;
				setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
				c = calloc(1, sizeof *c);
				c->fd = fd;
				watch(ep, EPOLL_CTL_ADD, c, EPOLLIN);
			} else if (!(c->out ? writable(ep, c) : readable(ep, c, buf))) {
				end(c);
			}
		}
	}
}

// main answers each line on its input, and ends with it.
int main(int argc, char **argv) {
	int loops = argc > 1 ? atoi(argv[1]) : 1;
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	for (int i = 0; i < loops; i++) {
		pthread_t t;
		if (pthread_create(&t, NULL, loop, (void *)(intptr_t)listener(&addr)))
			fail("thread");
	}
	printf("127.0.0.1:%d\n", ntohs(addr.sin_port));
	fflush(stdout);
	char line[64];
	while (fgets(line, sizeof line, stdin)) {
		putchar('\n');
		fflush(stdout);
	}
	return 0;
}
