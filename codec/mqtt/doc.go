// Package mqtt is the wire format of MQTT 3.1.1 and 5.0, for servers and clients: a codec whose
// frames are whole control packets, and for each packet a struct that is parsed from a frame and
// appended to a buffer.
//
//	srv := loop.Server{Codec: mqtt.Codec{}, Accept: ...}
//
//	func (s *session) OnMessage(c *loop.Conn, frame []byte) error {
//		switch mqtt.TypeOf(frame) {
//		case mqtt.CONNECT:
//			connect, err := mqtt.ParseConnect(frame)
//			...
//		case mqtt.PUBLISH:
//			publish, err := mqtt.ParsePublish(frame, s.version)
//			...
//		}
//	}
//
// The two versions differ in most packets, and only CONNECT says which one a connection speaks. So
// the program remembers the Version of the CONNECT and gives it to every other Parse and Append
// function. Where version 3.1.1 has no field for something, such as a reason code in a PUBACK, the
// Append functions leave it out, and the Parse functions return its zero value.
//
// # Borrowed bytes
//
// A parsed packet borrows: its byte slices are pieces of the frame, valid for as long as the frame
// is, which in a handler means until the callback returns. Parsing and appending a PUBLISH, an
// acknowledgement or a PINGREQ do not allocate.
//
// # Errors
//
// What a peer must not send is an *Error with the reason code that version 5 has for it, so that a
// server can send it in a CONNACK or a DISCONNECT before it closes. It is also
// codec.ErrMalformed, or codec.ErrTooLong for the code PacketTooLarge.
//
// The package checks each packet by itself: flags, lengths, UTF-8, topic names and filters, which
// properties a packet may have and how often. It keeps no state, so rules about sequences of packets
// are the program's: that CONNECT comes first and once, which packet identifiers are in use, topic
// aliases, the receive maximum.
//
// Numbers in brackets such as [MQTT-3.3.1-4] are the conformance statements of "MQTT Version 5.0",
// OASIS Standard, 7 March 2019.
package mqtt
