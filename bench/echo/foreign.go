//go:build linux

package main

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

var (
	//go:embed foreign/epoll.c
	epollC []byte
	//go:embed foreign/Netty.java
	nettyJava []byte

	nettyJars = []string{"/usr/share/java/netty-handler.jar", "/usr/share/java/netty-codec.jar", "/usr/share/java/netty-transport.jar",
		"/usr/share/java/netty-buffer.jar", "/usr/share/java/netty-resolver.jar", "/usr/share/java/netty-common.jar", "/usr/share/java/jctools-core.jar"}
)

// become compiles a source file by a command, and is another program from then on.
func become(source string, text []byte, compiler, program []string) error {
	if err := os.WriteFile(source, text, 0o600); err != nil {
		return err
	}
	if out, err := exec.Command(compiler[0], compiler[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", compiler[0], err, out)
	}
	path, err := exec.LookPath(program[0])
	if err != nil {
		return err
	}
	return syscall.Exec(path, program, os.Environ())
}

func serveC(s setup) error {
	exe := filepath.Join(s.Dir, "epoll")
	return become(exe+".c", epollC, []string{"cc", "-O2", "-pthread", "-o", exe, exe + ".c"}, []string{exe, fmt.Sprint(s.Loops)})
}

// serveNetty has an IdleStateHandler, and as many cores as the others.
func serveNetty(s setup) error {
	source, path := filepath.Join(s.Dir, "Netty.java"), strings.Join(append(nettyJars, s.Dir), ":")
	return become(source, nettyJava, []string{"javac", "-cp", path, "-d", s.Dir, source},
		[]string{"java", "-cp", path, "-XX:+UseSerialGC", fmt.Sprintf("-XX:ActiveProcessorCount=%d", s.Loops),
			"--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
			"-Dio.netty.tryReflectionSetAccessible=true", "Netty", fmt.Sprint(s.Loops), fmt.Sprint(s.Timeout.Milliseconds())})
}
