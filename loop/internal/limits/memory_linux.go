package limits

import (
	"math"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func physical() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(uint64(info.Totalram) * uint64(info.Unit))
}

// groups returns the least limit of the process's control groups and those around them, in version 1
// and 2, under root. In a container the path of a group may be one of the host, where nothing is:
// then the group is what is mounted.
func groups(root string) int64 {
	limit := int64(math.MaxInt64)
	own, err := os.ReadFile(path.Join(root, "proc/self/cgroup"))
	if err != nil {
		return limit
	}
	for line := range strings.Lines(string(own)) { // 9:memory:/a/b, or 0::/a/b
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		mount, file := "sys/fs/cgroup", "memory.max"
		if f[0] != "0" {
			if mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"; !strings.Contains(","+f[1]+",", ",memory,") {
				continue
			}
		}
		for dir := path.Join("/", f[2]); ; dir = path.Dir(dir) {
			b, _ := os.ReadFile(path.Join(root, mount, dir, file))
			if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil {
				limit = min(limit, n)
			}
			if dir == "/" {
				break
			}
		}
	}
	return limit
}
