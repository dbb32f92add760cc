// Command cpu compares the CPU time that echo servers take: loopwheel with all that it guards
// against, and raw gnet. It runs the servers and the client of ../instructions in turn, pair after
// pair, so that both have the same of what else the machine does, and prints each pair and the
// median of their ratios.
//
//	go run ./cpu [-pairs 9] [-limit 1.05] [-peer loopwheel-all] [-against gnet] [-place apart]
//
// Where the system has client and server run is half of the figure: on one core a message costs
// less than on two. With -place that is not left to chance.
//
// CPU time is what the system says the server process took, its own and the kernel's on its behalf,
// from start to end, by one thread running Go code. With -limit it fails if the median ratio is
// above that.
package main

import (
	"bufio"
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/place"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("cpu: ")
	pairs := flag.Int("pairs", 9, "how many pairs of runs")
	peer := flag.String("peer", "loopwheel-all", "the server that is compared")
	against := flag.String("against", "gnet", "the server that it is compared with")
	conns := flag.Int("conns", 50, "connections of the client")
	n := flag.Int("n", 6000, "messages on each of them")
	limit := flag.Float64("limit", 0, "fail above this ratio; 0 means never")
	where := flag.String("place", "", place.Usage)
	flag.Parse()
	if err := compare(*peer, *against, *where, *pairs, *conns, *n, *limit); err != nil {
		log.Fatal(err)
	}
}

func compare(peer, against, where string, pairs, conns, n int, limit float64) error {
	if err := place.Check(where); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "cpu")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bin := filepath.Join(dir, "instructions")
	build := exec.Command("go", "build", "-o", bin, "github.com/loopwheel/loopwheel/bench/instructions")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return err
	}
	var ours, theirs, ratios []float64
	fmt.Printf("microseconds of CPU per message\n%4s %14s %14s %7s\n", "pair", peer, against, "ratio")
	for i := range pairs {
		order := []string{peer, against}
		if i%2 == 1 {
			slices.Reverse(order)
		}
		cost := make(map[string]float64)
		for _, name := range order {
			took, err := run(bin, name, where, conns, n)
			if err != nil {
				return err
			}
			cost[name] = float64(took.Nanoseconds()) / 1000 / float64(conns*n)
		}
		a, b := cost[peer], cost[against]
		ours, theirs, ratios = append(ours, a), append(theirs, b), append(ratios, a/b)
		fmt.Printf("%4d %14.3f %14.3f %7.3f\n", i+1, a, b, a/b)
	}
	fmt.Printf("%4s %14.3f %14.3f %7.3f\n", "med", median(ours), median(theirs), median(ratios))
	if r := median(ratios); limit > 0 && r > limit {
		return fmt.Errorf("%s takes %.3f times the CPU of %s, more than %.3f", peer, r, against, limit)
	}
	return nil
}

func median[T cmp.Ordered](s []T) T {
	s = slices.Sorted(slices.Values(s))
	return s[len(s)/2]
}

// run returns the CPU time of a server that echoes n messages on each of so many connections.
func run(bin, peer, where string, conns, n int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	server := exec.CommandContext(ctx, bin, "-peer", peer)
	server.Env = append(os.Environ(), "GOMAXPROCS=1")
	server.Stderr = os.Stderr
	out, err := server.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := server.Start(); err != nil {
		return 0, err
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		cancel()
		return 0, fmt.Errorf("%s does not say where it listens: %w", peer, err)
	}
	client := exec.CommandContext(ctx, bin, "-client", strings.TrimSpace(addr), "-conns", strconv.Itoa(conns), "-n", strconv.Itoa(n))
	client.Stderr = os.Stderr
	if err := client.Start(); err != nil {
		cancel()
		return 0, err
	}
	if _, err := place.Bind(where, server.Process.Pid, client.Process.Pid); err != nil {
		cancel()
		return 0, err
	}
	if err := client.Wait(); err != nil {
		cancel()
		return 0, fmt.Errorf("the client of %s: %w", peer, err)
	}
	if err := server.Wait(); err != nil { // it ends when its client has left
		return 0, fmt.Errorf("%s: %w", peer, err)
	}
	return server.ProcessState.UserTime() + server.ProcessState.SystemTime(), nil
}
