package mqtt

import (
	"fmt"

	"github.com/loopwheel/loopwheel/codec"
)

// ReasonCode is the result of an operation, in the numbers of version 5 (section 2.4). Codes from
// 0x80 are failures. The CONNACK of version 3.1.1 has numbers of its own: parsing and appending
// translate them.
type ReasonCode byte

// The reason codes. Success is also called "normal disconnection" in DISCONNECT and "granted QoS 0"
// in SUBACK.
const (
	Success                    ReasonCode = 0x00
	GrantedQoS1                ReasonCode = 0x01
	GrantedQoS2                ReasonCode = 0x02
	DisconnectWithWill         ReasonCode = 0x04
	NoMatchingSubscribers      ReasonCode = 0x10
	NoSubscriptionExisted      ReasonCode = 0x11
	ContinueAuthentication     ReasonCode = 0x18
	ReAuthenticate             ReasonCode = 0x19
	UnspecifiedError           ReasonCode = 0x80
	MalformedPacket            ReasonCode = 0x81
	ProtocolError              ReasonCode = 0x82
	ImplementationSpecific     ReasonCode = 0x83
	UnsupportedProtocolVersion ReasonCode = 0x84
	ClientIDNotValid           ReasonCode = 0x85
	BadUserNameOrPassword      ReasonCode = 0x86
	NotAuthorized              ReasonCode = 0x87
	ServerUnavailable          ReasonCode = 0x88
	ServerBusy                 ReasonCode = 0x89
	Banned                     ReasonCode = 0x8A
	ServerShuttingDown         ReasonCode = 0x8B
	BadAuthenticationMethod    ReasonCode = 0x8C
	KeepAliveTimeout           ReasonCode = 0x8D
	SessionTakenOver           ReasonCode = 0x8E
	TopicFilterInvalid         ReasonCode = 0x8F
	TopicNameInvalid           ReasonCode = 0x90
	PacketIDInUse              ReasonCode = 0x91
	PacketIDNotFound           ReasonCode = 0x92
	ReceiveMaximumExceeded     ReasonCode = 0x93
	TopicAliasInvalid          ReasonCode = 0x94
	PacketTooLarge             ReasonCode = 0x95
	MessageRateTooHigh         ReasonCode = 0x96
	QuotaExceeded              ReasonCode = 0x97
	AdministrativeAction       ReasonCode = 0x98
	PayloadFormatInvalid       ReasonCode = 0x99
	RetainNotSupported         ReasonCode = 0x9A
	QoSNotSupported            ReasonCode = 0x9B
	UseAnotherServer           ReasonCode = 0x9C
	ServerMoved                ReasonCode = 0x9D
	SharedNotSupported         ReasonCode = 0x9E
	ConnectionRateExceeded     ReasonCode = 0x9F
	MaximumConnectTime         ReasonCode = 0xA0
	SubscriptionIDNotSupported ReasonCode = 0xA1
	WildcardNotSupported       ReasonCode = 0xA2
)

var reasonNames = map[ReasonCode]string{
	Success: "success", GrantedQoS1: "granted QoS 1", GrantedQoS2: "granted QoS 2",
	DisconnectWithWill:    "disconnect with will message",
	NoMatchingSubscribers: "no matching subscribers", NoSubscriptionExisted: "no subscription existed",
	ContinueAuthentication: "continue authentication", ReAuthenticate: "re-authenticate",
	UnspecifiedError: "unspecified error", MalformedPacket: "malformed packet", ProtocolError: "protocol error",
	ImplementationSpecific: "implementation specific error", UnsupportedProtocolVersion: "unsupported protocol version",
	ClientIDNotValid: "client identifier not valid", BadUserNameOrPassword: "bad user name or password",
	NotAuthorized: "not authorized", ServerUnavailable: "server unavailable", ServerBusy: "server busy",
	Banned: "banned", ServerShuttingDown: "server shutting down", BadAuthenticationMethod: "bad authentication method",
	KeepAliveTimeout: "keep alive timeout", SessionTakenOver: "session taken over",
	TopicFilterInvalid: "topic filter invalid", TopicNameInvalid: "topic name invalid",
	PacketIDInUse: "packet identifier in use", PacketIDNotFound: "packet identifier not found",
	ReceiveMaximumExceeded: "receive maximum exceeded", TopicAliasInvalid: "topic alias invalid",
	PacketTooLarge: "packet too large", MessageRateTooHigh: "message rate too high", QuotaExceeded: "quota exceeded",
	AdministrativeAction: "administrative action", PayloadFormatInvalid: "payload format invalid",
	RetainNotSupported: "retain not supported", QoSNotSupported: "QoS not supported",
	UseAnotherServer: "use another server", ServerMoved: "server moved",
	SharedNotSupported: "shared subscriptions not supported", ConnectionRateExceeded: "connection rate exceeded",
	MaximumConnectTime: "maximum connect time", SubscriptionIDNotSupported: "subscription identifiers not supported",
	WildcardNotSupported: "wildcard subscriptions not supported",
}

// String returns the name as the standard has it, or the number of a code that it does not have.
func (r ReasonCode) String() string {
	if name, ok := reasonNames[r]; ok {
		return name
	}
	return fmt.Sprintf("reason code 0x%02X", byte(r))
}

// Bits of packetsOf.
const (
	connack    = 1 << CONNACK
	published  = 1<<PUBACK | 1<<PUBREC
	completed  = 1<<PUBREL | 1<<PUBCOMP
	suback     = 1 << SUBACK
	unsuback   = 1 << UNSUBACK
	disconnect = 1 << DISCONNECT
	auth       = 1 << AUTH
)

// packetsOf has a bit for each type of packet that may have a code (table 2-6 of section 2.4).
var packetsOf = [256]uint16{
	Success:                    connack | published | completed | suback | unsuback | disconnect | auth,
	GrantedQoS1:                suback,
	GrantedQoS2:                suback,
	DisconnectWithWill:         disconnect,
	NoMatchingSubscribers:      published,
	NoSubscriptionExisted:      unsuback,
	ContinueAuthentication:     auth,
	ReAuthenticate:             auth,
	UnspecifiedError:           connack | published | suback | unsuback | disconnect,
	MalformedPacket:            connack | disconnect,
	ProtocolError:              connack | disconnect,
	ImplementationSpecific:     connack | published | suback | unsuback | disconnect,
	UnsupportedProtocolVersion: connack,
	ClientIDNotValid:           connack,
	BadUserNameOrPassword:      connack,
	NotAuthorized:              connack | published | suback | unsuback | disconnect,
	ServerUnavailable:          connack,
	ServerBusy:                 connack | disconnect,
	Banned:                     connack,
	ServerShuttingDown:         disconnect,
	BadAuthenticationMethod:    connack | disconnect,
	KeepAliveTimeout:           disconnect,
	SessionTakenOver:           disconnect,
	TopicFilterInvalid:         suback | unsuback | disconnect,
	TopicNameInvalid:           connack | published | disconnect,
	PacketIDInUse:              published | suback | unsuback,
	PacketIDNotFound:           completed,
	ReceiveMaximumExceeded:     disconnect,
	TopicAliasInvalid:          disconnect,
	PacketTooLarge:             connack | disconnect,
	MessageRateTooHigh:         disconnect,
	QuotaExceeded:              connack | published | suback | disconnect,
	AdministrativeAction:       disconnect,
	PayloadFormatInvalid:       connack | published | disconnect,
	RetainNotSupported:         connack | disconnect,
	QoSNotSupported:            connack | disconnect,
	UseAnotherServer:           connack | disconnect,
	ServerMoved:                connack | disconnect,
	SharedNotSupported:         suback | disconnect,
	ConnectionRateExceeded:     connack | disconnect,
	MaximumConnectTime:         disconnect,
	SubscriptionIDNotSupported: suback | disconnect,
	WildcardNotSupported:       suback | disconnect,
}

// checkFor returns nil if a packet of type t may have the code. Version 3.1.1 has no such codes.
func (r ReasonCode) checkFor(v Version, t Type) error {
	if v == V5 && packetsOf[r]>>t&1 == 0 {
		return protocolError("%v with %v", t, r)
	}
	return nil
}

// connackCodes are the return codes of version 3.1.1 (its section 3.2.2.3), by number.
var connackCodes = [...]ReasonCode{Success, UnsupportedProtocolVersion, ClientIDNotValid, ServerUnavailable,
	BadUserNameOrPassword, NotAuthorized}

// connack311 returns r as a return code of version 3.1.1. A code that it does not have becomes the
// nearest one.
func (r ReasonCode) connack311() byte {
	for i, code := range connackCodes {
		if r == code {
			return byte(i)
		}
	}
	switch r {
	case MalformedPacket, ProtocolError, Banned, BadAuthenticationMethod:
		return 5
	}
	return 3
}

// An Error says why a packet is refused, with the reason code to tell the peer. errors.Is finds
// codec.ErrTooLong in it if Code is PacketTooLarge, and codec.ErrMalformed otherwise.
type Error struct {
	Code ReasonCode
	Text string // what exactly; for logs
}

// Error returns code and text.
func (e *Error) Error() string { return "mqtt: " + e.Code.String() + ": " + e.Text }

// Is implements errors.Is.
func (e *Error) Is(target error) bool {
	if e.Code == PacketTooLarge {
		return target == codec.ErrTooLong
	}
	return target == codec.ErrMalformed
}

func malformed(format string, args ...any) error {
	return &Error{MalformedPacket, fmt.Sprintf(format, args...)}
}

// notAllowed is the error for a value that a packet of type t cannot have. The codes are mosquitto's:
// the standard leaves them open, or wants MalformedPacket for all (section 2.2.2.2).
func notAllowed(t Type, format string, args ...any) error {
	if t == SUBSCRIBE || t == UNSUBSCRIBE {
		return malformed(format, args...)
	}
	return protocolError(format, args...)
}

func protocolError(format string, args ...any) error {
	return &Error{ProtocolError, fmt.Sprintf(format, args...)}
}
