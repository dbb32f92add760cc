package main

import (
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/codec/mqtt"
)

// message is a published message. It does not change once it is published, so that all loops and
// sessions share it.
type message struct {
	topic   string
	payload []byte
	qos     byte
	retain  bool
	props   mqtt.Properties // as subscribers get them, without expiry and alias
	expires time.Time       // zero: never
	from    string          // the publisher's client identifier; empty: the broker or a will
	stamp   uint64          // of a retained message: see retained
	origin  int             // the shard of the publisher
	seq     uint64          // counts what that shard has published
	keepers atomic.Int32    // trees and sessions that keep it: see budget
}

// newMessage copies a PUBLISH. The topic alias has been replaced.
func newMessage(topic string, p *mqtt.Publish, from string, now time.Time) *message {
	m := &message{topic: topic, payload: make([]byte, len(p.Payload)), qos: p.QoS, retain: p.Retain, from: from}
	copy(m.payload, p.Payload)
	m.setProperties(p.Properties, now)
	return m
}

func (m *message) setProperties(p mqtt.Properties, now time.Time) {
	for q := range p.All() {
		switch q.ID {
		case mqtt.MessageExpiry:
			m.expires = now.Add(time.Duration(q.Number) * time.Second)
		case mqtt.TopicAlias, mqtt.WillDelay, mqtt.SubscriptionID:
		default:
			m.props = m.props.AppendProperty(q)
		}
	}
}

func (m *message) expired(now time.Time) bool { return !m.expires.IsZero() && !now.Before(m.expires) }

// outgoing is a message on its way to one session.
type outgoing struct {
	m    *message
	o    options
	ids  []uint32 // subscription identifiers, if there are several
	id   uint16   // packet identifier, once it was sent with QoS 1 or 2
	turn uint64   // orders what was sent
	sent bool     // once before: what is sent again has DUP
	rel  bool     // QoS 2: PUBREC has come, PUBREL was sent
}

// size is how many bytes out takes of its client's limits. Of a message whose PUBREC has come only the
// identifier is left.
func (out *outgoing) size() int {
	if out.m == nil {
		return 0
	}
	return len(out.m.payload)
}

// publish returns the packet for a client, without a topic alias.
func (out *outgoing) publish(v mqtt.Version, now time.Time) mqtt.Publish {
	m := out.m
	p := mqtt.Publish{QoS: out.o.qos, Retain: out.o.retain, ID: out.id, Topic: []byte(m.topic), Payload: m.payload}
	if v != mqtt.V5 {
		return p
	}
	if m.expires.IsZero() && out.o.id == 0 && len(out.ids) == 0 {
		p.Properties = m.props
		return p
	}
	props := append(mqtt.Properties(nil), m.props...)
	if !m.expires.IsZero() {
		props = props.AppendNumber(mqtt.MessageExpiry, uint32(max(0, m.expires.Sub(now)+time.Second-1)/time.Second))
	}
	if len(out.ids) == 0 && out.o.id != 0 {
		props = props.AppendNumber(mqtt.SubscriptionID, out.o.id)
	}
	for _, id := range out.ids {
		props = props.AppendNumber(mqtt.SubscriptionID, id)
	}
	p.Properties = props
	return p
}
