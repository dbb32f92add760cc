package handover

import (
	"net"
	"os"
	"os/exec"
	"os/signal"
)

// RestartOn starts the program's file once more, with the arguments and the environment of this
// process, at each of the signals, such as SIGHUP. The file may be another version by now. The new
// process takes over by Take when it is ready. If it ends before, this one goes on, and failed is
// called with the reason, on a goroutine of its own. RestartOn returns at once; any goroutine may
// call it, once.
func RestartOn(failed func(err error), signals ...os.Signal) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, signals...)
	go func() {
		for range asked {
			next := exec.Command(os.Args[0], os.Args[1:]...)
			next.Stdin, next.Stdout, next.Stderr = os.Stdin, os.Stdout, os.Stderr
			if err := next.Run(); err != nil { // it outlives this process, or has failed
				failed(err)
			}
		}
	}()
}

// Listen returns the listener that the old process has handed over under this name, by Config.Also.
// If there is none, Listen opens one, as net.Listen does.
func (r Report) Listen(name, network, addr string) (net.Listener, error) {
	if ln := r.Also[name]; ln != nil {
		return ln, nil
	}
	return net.Listen(network, addr)
}
