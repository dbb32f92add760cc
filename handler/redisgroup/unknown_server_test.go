package redisgroup

import "testing"

// A message is taken though the server's identity was not known when it was sent, as Redis had
// refused to tell it.
func TestMessageToAnUnknownServer(t *testing.T) {
	h := openMini(t)
	o := &outgoing{place: h.keys.place(orderedRoom, "room"), op: opOrdered, seq: 1, data: []byte("hello")}
	keys, args := h.publishing[0].publishArgs([]*outgoing{o})
	answers, err := publishScript.Run(t.Context(), h.client, keys, args...).StringSlice()
	if err != nil || len(answers) != 2 {
		t.Fatal(answers, err)
	}
	if _, err := ParsePosition(answers[0]); err != nil {
		t.Errorf("it was answered %q", answers[0])
	}
}
