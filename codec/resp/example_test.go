package resp_test

import (
	"fmt"

	"github.com/loopwheel/loopwheel/codec/resp"
)

func ExampleRequests_Args() {
	requests := resp.Server{}.New().(*resp.Requests) // a handler gets it by resp.Of(c)
	for data := []byte("*2\r\n$3\r\nGET\r\n$1\r\nk\r\nECHO 'hello world'\r\n"); len(data) > 0; {
		n, _, err := requests.Decode(data)
		if err != nil {
			fmt.Println(err)
			return
		}
		data = data[n:]
		fmt.Printf("%q\n", requests.Args())
	}
	// Output:
	// ["GET" "k"]
	// ["ECHO" "hello world"]
}

func ExampleVersion_AppendMap() {
	for _, v := range []resp.Version{resp.RESP2, resp.RESP3} {
		reply := v.AppendMap(nil, 1)
		reply = resp.AppendBulk(reply, "proto")
		reply = resp.AppendInt(reply, int64(v)+2)
		fmt.Printf("%q\n", reply)
	}
	// Output:
	// "*2\r\n$5\r\nproto\r\n:2\r\n"
	// "%1\r\n$5\r\nproto\r\n:3\r\n"
}

func ExampleParse() {
	v, err := resp.Parse([]byte("*2\r\n$5\r\nhello\r\n:7\r\n"))
	fmt.Printf("%s %d %v\n", v.Elems[0].Str, v.Elems[1].Int, err)
	// Output: hello 7 <nil>
}
