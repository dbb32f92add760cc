//go:build linux

package measure

import (
	"context"
	"fmt"
	"net"

	"github.com/panjf2000/gnet/v2"

	"github.com/loopwheel/loopwheel/loop"
)

// Listen listens on a free port of TCP, and prints its address.
func Listen() (net.Listener, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		fmt.Println(ln.Addr())
	}
	return ln, err
}

// Serve runs a server of loopwheel's, and prints its address when it listens.
func Serve(srv *loop.Server) error {
	if err := srv.Start(context.Background()); err != nil {
		return err
	}
	fmt.Println(srv.LocalAddr())
	return srv.Wait()
}

// FreeAddr returns an address of TCP where nothing listens now, for programs that do not tell which
// port they got.
func FreeAddr() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

// RunGnet runs a gnet server on a free port of "tcp" or "udp", and prints its address when it
// listens.
func RunGnet(network string, h gnet.EventHandler, opts ...gnet.Option) error {
	addr, err := FreeAddr()
	if err != nil {
		return err
	}
	return gnet.Run(booted{h, addr}, network+"://"+addr, append(opts, gnet.WithLogger(silent{}))...)
}

type booted struct {
	gnet.EventHandler
	addr string
}

func (b booted) OnBoot(e gnet.Engine) gnet.Action {
	fmt.Println(b.addr)
	return b.EventHandler.OnBoot(e)
}

// silent keeps gnet from printing to the standard output.
type silent struct{}

func (silent) Debugf(string, ...any) {}
func (silent) Infof(string, ...any)  {}
func (silent) Warnf(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(string, ...any) {}
