package redisopt_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/loopwheel/loopwheel/internal/redisopt"
)

type credentials struct{}

func (*credentials) Subscribe(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	return nil, nil, errors.New("nobody")
}

// full has something in each field of options of go-redis, which it is not by default: n in
// numbers.
func full(t *testing.T, options any, n int) {
	t.Helper()
	v := reflect.ValueOf(options).Elem()
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i)
		switch {
		case !name.IsExported():
		case f.Type() == reflect.TypeFor[[]string]():
			f.Set(reflect.ValueOf([]string{"127.0.0.1:1"}))
		case f.Kind() == reflect.String:
			f.SetString("127.0.0.1:1")
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		case name.Name == "Protocol", name.Name == "ClientSideCacheStrategy": // of which others make no sense
		case f.CanInt():
			f.SetInt(int64(n))
		case f.Kind() == reflect.Func:
			f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value { panic("it is only compared") }))
		}
	}
}

var excepted = []string{
	"MaintNotificationsConfig", "PushNotificationProcessor", "ClientSideCache", "ClientSideCacheConfig",
	"ReadOnly", "RouteByLatency", "RouteRandomly",
}

// same wants a client to have what another has, all that Copy does not leave out.
func same(t *testing.T, got, want any) {
	t.Helper()
	g, w := reflect.ValueOf(got).Elem(), reflect.ValueOf(want).Elem()
	for i := range w.NumField() {
		name := w.Type().Field(i)
		if !name.IsExported() || slices.Contains(excepted, name.Name) {
			continue
		}
		a, b := g.Field(i), w.Field(i)
		switch name.Type.Kind() {
		case reflect.Func:
			if a.Pointer() != b.Pointer() {
				t.Errorf("%s is another", name.Name)
			}
		default:
			if !reflect.DeepEqual(a.Interface(), b.Interface()) {
				t.Errorf("%s is %v, want %v", name.Name, a, b)
			}
		}
	}
}

// A client that is made of what another one has is like that, but for what go-redis does unasked.
func TestCopy(t *testing.T) {
	for _, n := range []int{-2, -1, 0, 1, int(time.Second)} {
		o := &redis.Options{}
		full(t, o, n)
		o.PoolSize, o.PipelinePoolSize, o.MinIdleConns, o.ReadBufferSize, o.WriteBufferSize = 7, 8, 0, 4096, 8192
		o.MaxIdleConns, o.MaxActiveConns, o.PipelineReadBufferSize, o.PipelineWriteBufferSize = 9, 10, 4096, 4096
		o.MaxConcurrentDials, o.AutoPipelineOptions = 3, nil
		o.Dialer = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nobody") }
		o.TLSConfig, o.StreamingCredentialsProvider = &tls.Config{ServerName: "me"}, &credentials{}
		o.ClientSideCacheConfig = &redis.ClientSideCacheConfig{}
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		first := redis.NewClient(o)
		defer first.Close()
		had := first.Options().PushNotificationProcessor
		second := redis.NewClient(redisopt.Copy(first.Options()))
		defer second.Close()
		got := second.Options()
		same(t, got, first.Options())
		if first.Options().ClientSideCacheConfig == nil || first.Options().PushNotificationProcessor != had {
			t.Errorf("%d: the options of the first have changed", n)
		}
		if got.MaintNotificationsConfig.Mode != maintnotifications.ModeDisabled || got.ClientSideCache != nil ||
			got.ClientSideCacheConfig != nil || got.PushNotificationProcessor == had {
			t.Errorf("%d: what go-redis does unasked: %+v", n, got)
		}
	}
}

// A client that is asked for nothing about maintenance does not get it by being copied.
func TestCopyLeavesMaintenanceOff(t *testing.T) {
	first := redis.NewClient(&redis.Options{})
	defer first.Close()
	if mode := redisopt.Copy(first.Options()).MaintNotificationsConfig.Mode; mode != maintnotifications.ModeDisabled {
		t.Errorf("it is %q", mode)
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cluster.Close()
	if mode := redisopt.CopyCluster(cluster.Options()).MaintNotificationsConfig.Mode; mode != maintnotifications.ModeDisabled {
		t.Errorf("it is %q", mode)
	}
}

// So is one of a cluster, and it reads from masters only.
func TestCopyCluster(t *testing.T) {
	for _, n := range []int{-2, -1, 0, 1, int(time.Second)} {
		o := &redis.ClusterOptions{}
		full(t, o, n)
		o.Dialer = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nobody") }
		o.TLSConfig, o.StreamingCredentialsProvider = &tls.Config{ServerName: "me"}, &credentials{}
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		o.MinIdleConns = 0
		first := redis.NewClusterClient(o)
		defer first.Close()
		second := redis.NewClusterClient(redisopt.CopyCluster(first.Options()))
		defer second.Close()
		same(t, second.Options(), first.Options())
		if got := second.Options(); got.ReadOnly || got.RouteByLatency || got.RouteRandomly {
			t.Errorf("%d: it reads from replicas", n)
		}
	}
}
