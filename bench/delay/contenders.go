//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strconv"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
	"github.com/loopwheel/loopwheel/timing/rediswheel"
)

// A contender adds tasks and works on them. Tasks are named by numbers, so that each is there once.
type contender interface {
	name() string
	add(n int, due time.Time, body []byte) error
	work(f func(n int)) (stop func()) // one worker
	close()
}

const concurrency = 64

func contenders(r *redisServer) ([]contender, error) {
	client := redis.NewClient(&redis.Options{Addr: r.Addr})
	q, err := rediswheel.Open(context.Background(), client, rediswheel.Config{Concurrency: concurrency})
	if err != nil {
		return nil, err
	}
	option := asynq.RedisClientOpt{Addr: r.Addr}
	return []contender{&ours{client, q}, &theirs{option, asynq.NewClient(option)}}, nil
}

type ours struct {
	client *redis.Client
	q      *rediswheel.Queue
}

func (o *ours) name() string { return "rediswheel" }

func (o *ours) add(n int, due time.Time, body []byte) error {
	return o.q.Add(context.Background(), rediswheel.Task{Key: strconv.Itoa(n), At: due, Body: body})
}

func (o *ours) work(f func(n int)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		_ = o.q.Run(ctx, rediswheel.HandlerFunc(func(_ context.Context, t rediswheel.Task) error {
			n, err := strconv.Atoi(t.Key)
			if err == nil {
				f(n)
			}
			return err
		}))
	})
	return func() {
		cancel()
		ended.Wait()
	}
}

func (o *ours) close() { o.client.Close() }

// theirs is asynq with its defaults, but for the number of goroutines and the log.
type theirs struct {
	option asynq.RedisClientOpt
	client *asynq.Client
}

func (a *theirs) name() string { return "asynq" }

func (a *theirs) add(n int, due time.Time, body []byte) error {
	_, err := a.client.Enqueue(asynq.NewTask("t", body), asynq.TaskID(strconv.Itoa(n)), asynq.ProcessAt(due))
	return err
}

type silent struct{}

func (silent) Debug(...any) {}
func (silent) Info(...any)  {}
func (silent) Warn(...any)  {}
func (silent) Error(...any) {}
func (silent) Fatal(v ...any) {
	log.Fatal(v...)
}

func (a *theirs) work(f func(n int)) (stop func()) {
	srv := asynq.NewServer(a.option, asynq.Config{Concurrency: concurrency, Logger: silent{}})
	err := srv.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		n, err := strconv.Atoi(id)
		if err == nil {
			f(n)
		}
		return err
	}))
	if err != nil {
		log.Fatal(err)
	}
	return srv.Shutdown
}

func (a *theirs) close() { a.client.Close() }

// each calls f for each contender, in turns, as often as there are rounds; Redis is empty each
// time.
func each(r *redisServer, rounds int, f func(c contender) error) error {
	for _, i := range measure.Turns(rounds, []int{0, 1}) {
		if err := r.flush(); err != nil {
			return err
		}
		all, err := contenders(r)
		if err != nil {
			return err
		}
		err = f(all[i])
		for _, c := range all {
			c.close()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", all[i].name(), err)
		}
	}
	return nil
}

// addAll adds n tasks from several goroutines, one by one as users do.
func addAll(c contender, n int, due func(n int) time.Time, body []byte) error {
	const adders = 8
	errs := make([]error, adders)
	var all sync.WaitGroup
	for a := range adders {
		all.Go(func() {
			for i := a; i < n && errs[a] == nil; i += adders {
				errs[a] = c.add(i, due(i), body)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
