package limits

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

func TestGroups(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"none", map[string]string{"proc/self/cgroup": "0::/\n"}, math.MaxInt64},
		{"no file", nil, math.MaxInt64},
		{"version 2 in a container", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "67108864\n"}, 64 << 20},
		{"version 2, unlimited within a limit", map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n",
			"sys/fs/cgroup/a/memory.max": "1000\n"}, 1000},
		{"version 2, the lower of two", map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "900\n",
			"sys/fs/cgroup/a/memory.max": "1000\n"}, 900},
		{"version 1", map[string]string{"proc/self/cgroup": "5:cpu:/x\n9:memory:/a\n0::/init\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1000\n"}, 1000},
		{"version 1 with a path of the host", map[string]string{"proc/self/cgroup": "9:hugetlb,memory:/docker/1\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "1000\n"}, 1000},
		{"version 1, unlimited", map[string]string{"proc/self/cgroup": "9:memory:/\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 9223372036854771712},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range tt.files {
				name = filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			testkit.Want(t, "limit", groups(root), tt.want)
		})
	}
}

func TestGOMEMLIMIT(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(50 << 20))
	limit, set := Memory()
	testkit.Want(t, "limit", limit, 50<<20)
	testkit.Want(t, "set", set, true)
	testkit.Want(t, "the process's limit afterwards", debug.SetMemoryLimit(-1), 50<<20)
	debug.SetMemoryLimit(math.MaxInt64)
	if limit, set := Memory(); limit < 64<<20 || set && limit >= physical() {
		t.Errorf("without GOMEMLIMIT: %d bytes, %t", limit, set)
	}
}
