package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/codec/mqtt"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/handover"
)

// client is one connection.
type client struct {
	c  *loop.Conn
	sh *shard
	s  *session // nil before CONNECT, and after its end or take-over

	version   mqtt.Version // 0 before CONNECT
	connected bool         // CONNACK has been sent
	over      bool         // the last packet has been sent or received, or the connection has closed
	leftWell  bool         // it ended with a DISCONNECT that gives up the will

	receiveMax int      // what the client takes at once of QoS 1 and 2
	maxPacket  int      // the longest packet that it takes; 0: any
	aliases    []string // inbound topic aliases
	outAliases map[string]uint16
	maxAlias   int        // outbound
	keepAlive  uint16     // seconds
	waits      loop.Timer // for CONNECT
	cost       int        // of the aliases: see budget
}

// errEnd closes a connection after the client's DISCONNECT, or after the broker has sent its own.
var errEnd = fmt.Errorf("mqtt: disconnected (%w)", codec.ErrEnd)

func (b *broker) accept(c *loop.Conn) loop.Handler {
	cl := &client{c: c, sh: b.shards[c.Loop().Index()]}
	cl.waits = c.AfterFunc(b.cfg.ConnectTimeout, func() {
		c.CloseWithError(fmt.Errorf("mqtt: no CONNECT within %v (%w)", b.cfg.ConnectTimeout, loop.ErrIdle))
	})
	c.OnFlushed(func() {
		if cl.s != nil {
			cl.s.pump(cl.sh)
		}
	})
	if state, moved := c.Saved(); moved {
		return b.acceptMoved(cl, state)
	}
	return cl
}

// OnMessage handles one packet. The client gets the reason code of an *mqtt.Error before the
// connection closes.
func (cl *client) OnMessage(c *loop.Conn, frame []byte) error {
	if cl.over {
		return nil
	}
	t := mqtt.TypeOf(frame)
	if (t == mqtt.CONNECT) != (cl.version == 0) {
		return cl.refuse(&mqtt.Error{Code: mqtt.ProtocolError, Text: t.String() + " at the wrong time"})
	}
	var err error
	switch t {
	case mqtt.CONNECT:
		err = cl.onConnect(frame)
	case mqtt.PUBLISH:
		err = cl.onPublish(frame)
	case mqtt.PUBACK, mqtt.PUBREC, mqtt.PUBREL, mqtt.PUBCOMP:
		err = cl.onAck(frame)
	case mqtt.SUBSCRIBE:
		err = cl.onSubscribe(frame)
	case mqtt.UNSUBSCRIBE:
		err = cl.onUnsubscribe(frame)
	case mqtt.PINGREQ:
		if err = mqtt.CheckPing(frame); err == nil {
			cl.write(mqtt.AppendPing(cl.sh.buf[:0], mqtt.PINGRESP))
		}
	case mqtt.DISCONNECT:
		err = cl.onDisconnect(frame)
	default:
		err = &mqtt.Error{Code: mqtt.ProtocolError, Text: t.String() + " from a client"}
	}
	return cl.refuse(err)
}

// refuse tells the client of an error, which ends the connection.
func (cl *client) refuse(err error) error {
	var refused *mqtt.Error
	if errors.As(err, &refused) {
		cl.bye(refused.Code)
	}
	return err
}

// bye sends the last packet, if the version has one, and nothing after it.
func (cl *client) bye(code mqtt.ReasonCode) {
	if cl.over {
		return
	}
	if cl.version == mqtt.V5 && cl.connected {
		d := mqtt.Disconnect{Code: code}
		if p, err := d.Append(cl.sh.buf[:0], cl.version); err == nil {
			cl.write(p)
		}
	}
	cl.over = true
}

// end closes the connection with a reason.
func (cl *client) end(code mqtt.ReasonCode) {
	cl.bye(code)
	cl.c.CloseWithError(fmt.Errorf("mqtt: %v (%w)", code, codec.ErrEnd))
}

// write sends a packet, which it borrows. An error closes the connection, and OnClose gets it.
func (cl *client) write(packet []byte) {
	if cl.over {
		return
	}
	if cl.maxPacket > 0 && len(packet) > cl.maxPacket { // [MQTT-3.1.2-24]
		cl.over = true
		cl.c.CloseWithError(fmt.Errorf("mqtt: the client takes no %v of %d bytes (%w)", mqtt.TypeOf(packet), len(packet), codec.ErrEnd))
		return
	}
	if cl.c.Send(packet) == nil {
		cl.sh.sent++
	}
}

// charge counts what the connection itself takes.
func (cl *client) charge(n int) {
	cl.cost += n
	cl.sh.budget.add(n)
}

func (cl *client) ack(t mqtt.Type, id uint16, code mqtt.ReasonCode) {
	a := mqtt.Ack{Type: t, ID: id, Code: code}
	if p, err := a.Append(cl.sh.buf[:0], cl.version); err == nil {
		cl.write(p)
	}
}

// OnClose is also the end of the session's part, unless another connection has taken it over.
func (cl *client) OnClose(_ *loop.Conn, err error) {
	cl.over = true
	cl.charge(-cl.cost)
	if cl.connected {
		cl.sh.b.counts.clients.Add(-1)
	}
	if s := cl.s; s != nil && !errors.Is(err, handover.ErrMoved) { // or else the session has moved, too
		s.detach(cl.sh, cl.leftWell, false)
		cl.sh.tellGroups(s)
	}
}

// onClosing is Server.Hooks.OnClosing: it sends the client the reason code for what the loop closes
// for.
func onClosing(c *loop.Conn, err error) {
	cl, ok := loop.HandlerAs[*client](c)
	if !ok {
		return
	}
	switch {
	case errors.Is(err, loop.ErrIdle):
		cl.bye(mqtt.KeepAliveTimeout)
	case errors.Is(err, loop.ErrServerClosed):
		cl.bye(mqtt.ServerShuttingDown)
	case errors.Is(err, codec.ErrTooLong):
		cl.bye(mqtt.PacketTooLarge)
	case errors.Is(err, codec.ErrMalformed):
		cl.bye(mqtt.MalformedPacket)
	}
}

func (cl *client) onConnect(frame []byte) error {
	p, err := mqtt.ParseConnect(frame)
	if cl.version = p.Version; cl.version != mqtt.V311 && cl.version != mqtt.V5 {
		cl.version = mqtt.V311 // for the answer
	}
	if err != nil {
		var refused *mqtt.Error
		if errors.As(err, &refused) && (refused.Code == mqtt.UnsupportedProtocolVersion || refused.Code == mqtt.ClientIDNotValid) {
			return cl.connack(mqtt.Connack{Code: refused.Code}, err)
		}
		return err // without a CONNACK [MQTT-3.1.4-1]
	}
	if _, ok := p.Properties.Value(mqtt.AuthenticationMethod); ok {
		return cl.connack(mqtt.Connack{Code: mqtt.BadAuthenticationMethod}, errEnd)
	}
	if w := p.Will; w != nil {
		if err := checkLevels(string(w.Topic)); err != nil {
			return err
		}
		if code := cl.sh.mayPublish(string(w.Topic), len(w.Payload)+len(w.Properties), w.Retain); code != mqtt.Success {
			return cl.connack(mqtt.Connack{Code: code}, errEnd)
		}
		if cl.sh.budget.exhausted() {
			return cl.connack(mqtt.Connack{Code: mqtt.QuotaExceeded}, errEnd)
		}
	}
	if cl.sh.b.srv.Draining() {
		return cl.connack(mqtt.Connack{Code: mqtt.ServerUnavailable}, errEnd)
	}
	cl.limits(p.Properties)
	req := &connect{id: string(p.ClientID), fresh: p.CleanStart, keepAlive: p.KeepAlive, will: newWill(p.Will)}
	if p.Version == mqtt.V5 {
		req.expiry, _ = p.Properties.Number(mqtt.SessionExpiry)
	} else if !p.CleanStart {
		req.expiry = never
	}
	if req.id == "" {
		req.id = newClientID()
		req.assigned = true
	}
	cl.c.PauseRead() // until the session is there
	if cl.sh.b.cfg.Auth == nil {
		cl.open(req)
		return nil
	}
	login := Login{ClientID: req.id, Username: string(p.Username), Password: bytes.Clone(p.Password), HasUsername: p.HasUsername, Remote: cl.c.RemoteAddr()}
	return loop.Offload(cl.c, func(ctx context.Context) mqtt.ReasonCode { return cl.sh.b.cfg.Auth(ctx, login) }, func(c *loop.Conn, code mqtt.ReasonCode) {
		if code != mqtt.Success {
			c.CloseWithError(cl.connack(mqtt.Connack{Code: code}, errEnd))
			return
		}
		cl.open(req)
	})
}

// connect is what is kept of a CONNECT until the client has its session.
type connect struct {
	id              string
	fresh, assigned bool
	keepAlive       uint16
	expiry          uint32
	will            *will
}

// limits reads what the client can take.
func (cl *client) limits(p mqtt.Properties) {
	cl.receiveMax = cl.sh.b.cfg.MaxInflight
	if n, ok := p.Number(mqtt.ReceiveMaximum); ok {
		cl.receiveMax = min(cl.receiveMax, int(n))
	}
	if n, ok := p.Number(mqtt.MaximumPacketSize); ok {
		cl.maxPacket = int(min(n, 1<<30))
	}
	if n, ok := p.Number(mqtt.TopicAliasMaximum); ok {
		cl.maxAlias = min(int(n), cl.sh.b.cfg.MaxAlias)
	}
}

// open gives the client its session, which may have to come from another loop.
func (cl *client) open(req *connect) {
	if !cl.sh.ready {
		cl.sh.held = append(cl.sh.held, func() { cl.open(req) })
		return
	}
	cl.sh.claim(req.id, req.fresh, func(s *session, present bool) {
		if s == nil {
			cl.c.CloseWithError(cl.connack(mqtt.Connack{Code: mqtt.QuotaExceeded}, errEnd))
			return
		}
		cfg := &cl.sh.b.cfg
		s.expiry = min(req.expiry, cfg.MaxSession)
		s.setWill(cl.sh, req.will)
		s.attach(cl)
		if cl.over { // it has closed meanwhile
			s.detach(cl.sh, false, false)
			return
		}
		cl.waits.Stop()
		ack := mqtt.Connack{SessionPresent: present}
		keepAlive := req.keepAlive
		if cfg.MaxKeepAlive > 0 && (keepAlive == 0 || keepAlive > cfg.MaxKeepAlive) && cl.version == mqtt.V5 {
			keepAlive = cfg.MaxKeepAlive
			ack.Properties = ack.Properties.AppendNumber(mqtt.ServerKeepAlive, uint32(keepAlive))
		}
		cl.setKeepAlive(keepAlive)
		if cl.version == mqtt.V5 {
			ack.Properties = ack.Properties.AppendNumber(mqtt.TopicAliasMaximum, uint32(cfg.MaxAlias))
			if req.assigned {
				ack.Properties = ack.Properties.AppendText(mqtt.AssignedClientID, req.id)
			}
			if s.expiry != req.expiry {
				ack.Properties = ack.Properties.AppendNumber(mqtt.SessionExpiry, s.expiry)
			}
			if cfg.MaxPacket < anyPacket {
				ack.Properties = ack.Properties.AppendNumber(mqtt.MaximumPacketSize, uint32(cfg.MaxPacket))
			}
			ack.Properties = ack.Properties.AppendNumber(mqtt.ReceiveMaximum, uint32(cfg.MaxInflight))
		}
		cl.connected = true
		cl.sh.b.counts.clients.Add(1)
		if cl.connack(ack, nil) != nil {
			return
		}
		cl.sh.tellGroups(s)
		s.resume(cl.sh)
		cl.c.ResumeRead()
	})
}

// setKeepAlive ends the connection when the client is silent for too long [MQTT-3.1.2-22].
func (cl *client) setKeepAlive(seconds uint16) {
	cl.keepAlive = seconds
	cl.c.SetIdleTimeout(time.Duration(seconds) * time.Second * 3 / 2)
}

// connack sends the answer to a CONNECT. With a failure it is the last packet.
func (cl *client) connack(ack mqtt.Connack, err error) error {
	p, e := ack.Append(cl.sh.buf[:0], cl.version)
	if e != nil {
		return e
	}
	cl.write(p)
	if ack.Code != mqtt.Success {
		cl.over = true
	}
	return err
}

func (cl *client) onDisconnect(frame []byte) error {
	d, err := mqtt.ParseDisconnect(frame, cl.version)
	if err != nil {
		return err
	}
	if n, ok := d.Properties.Number(mqtt.SessionExpiry); ok && cl.s != nil {
		if cl.s.expiry == 0 && n != 0 { // section 3.14.2.2.2
			return &mqtt.Error{Code: mqtt.ProtocolError, Text: "a session expiry that CONNECT did not have"}
		}
		cl.s.expiry = min(n, cl.sh.b.cfg.MaxSession)
	}
	cl.leftWell = d.Code != mqtt.DisconnectWithWill
	cl.over = true
	cl.c.CloseWithError(errEnd)
	return nil
}

func (cl *client) onPublish(frame []byte) error {
	p, err := mqtt.ParsePublish(frame, cl.version)
	if err != nil {
		return err
	}
	topic, err := cl.topic(&p)
	if err == nil {
		err = checkLevels(topic)
	}
	if err != nil {
		return err
	}
	cfg := &cl.sh.b.cfg
	code := cl.sh.mayPublish(topic, len(p.Payload)+len(p.Properties), p.Retain)
	if p.QoS == 2 {
		copies, again := cl.s.received[p.ID]
		switch {
		case copies > 1 && p.Dup: // a client does that for a new connection only [MQTT-4.4.0-1]
			return &mqtt.Error{Code: mqtt.ProtocolError, Text: "a message of QoS 2 for the third time"}
		case !again && len(cl.s.received) >= cfg.MaxInflight:
			return &mqtt.Error{Code: mqtt.ReceiveMaximumExceeded, Text: "too many messages of QoS 2 without PUBREL"}
		case again:
			cl.s.received[p.ID]++
			cl.ack(mqtt.PUBREC, p.ID, mqtt.Success)
			return nil
		case code == mqtt.Success:
			cl.s.received[p.ID] = 1
			cl.s.charge(&cl.sh.budget, receivedCost)
		}
		cl.ack(mqtt.PUBREC, p.ID, code)
	}
	if code == mqtt.Success && !cl.sh.publish(newMessage(topic, &p, cl.s.id, cl.sh.l.Now())) {
		code = mqtt.NoMatchingSubscribers
	}
	if p.QoS == 1 {
		cl.ack(mqtt.PUBACK, p.ID, code)
	}
	return nil
}

// topic returns the topic name of a PUBLISH, by its alias if it has one.
func (cl *client) topic(p *mqtt.Publish) (string, error) {
	alias, ok := p.Properties.Number(mqtt.TopicAlias)
	if !ok {
		return string(p.Topic), nil
	}
	if cl.aliases == nil {
		cl.aliases = make([]string, cl.sh.b.cfg.MaxAlias+1)
	}
	if int(alias) >= len(cl.aliases) { // the process before may have allowed fewer than the Config
		return "", &mqtt.Error{Code: mqtt.TopicAliasInvalid, Text: fmt.Sprint("topic alias ", alias)}
	}
	if len(p.Topic) > 0 {
		topic := string(p.Topic)
		more := costOfAlias(topic) - costOfAlias(cl.aliases[alias])
		if more > 0 && cl.sh.budget.exhausted() {
			return "", &mqtt.Error{Code: mqtt.QuotaExceeded, Text: "a topic alias"}
		}
		cl.charge(more)
		cl.aliases[alias] = topic
	}
	if cl.aliases[alias] == "" {
		return "", &mqtt.Error{Code: mqtt.ProtocolError, Text: fmt.Sprint("topic alias ", alias, " has no topic")}
	}
	return cl.aliases[alias], nil
}

func (cl *client) onAck(frame []byte) error {
	a, err := mqtt.ParseAck(frame, cl.version)
	if err != nil {
		return err
	}
	s := cl.s
	if a.Type == mqtt.PUBREL {
		code := mqtt.Success
		if _, ok := s.received[a.ID]; ok {
			s.charge(&cl.sh.budget, -receivedCost)
			delete(s.received, a.ID)
		} else {
			code = mqtt.PacketIDNotFound
		}
		cl.ack(mqtt.PUBCOMP, a.ID, code)
		return nil
	}
	out := s.inflight[a.ID]
	switch {
	case a.Type == mqtt.PUBREC && a.Code < 0x80:
		switch {
		case out == nil:
			cl.ack(mqtt.PUBREL, a.ID, mqtt.PacketIDNotFound)
		case out.o.qos != 2:
			return &mqtt.Error{Code: mqtt.ProtocolError, Text: "PUBREC for a message of QoS 1"}
		case !out.rel:
			out.rel = true
			s.flying -= out.size()
			out.m.drop(&cl.sh.budget)
			out.m = nil // only the identifier is needed from now on
			fallthrough
		default:
			cl.ack(mqtt.PUBREL, a.ID, mqtt.Success)
		}
		return nil
	case out == nil:
		return nil
	case a.Type == mqtt.PUBACK && out.o.qos != 1, a.Type != mqtt.PUBACK && out.o.qos != 2, a.Type == mqtt.PUBCOMP && !out.rel:
		return &mqtt.Error{Code: mqtt.ProtocolError, Text: a.Type.String() + " that does not belong to its message"}
	}
	s.landed(cl.sh, out)
	s.pump(cl.sh)
	return nil
}

func (cl *client) onSubscribe(frame []byte) error {
	p, err := mqtt.ParseSubscribe(frame, cl.version)
	if err != nil {
		return err
	}
	id, _ := p.Properties.Number(mqtt.SubscriptionID)
	ack := mqtt.SubAck{Type: mqtt.SUBACK, ID: p.ID}
	var fresh []*subscription
	for entry := range p.All() {
		if err := checkLevels(string(entry.Filter)); err != nil {
			return err
		}
		code := cl.subscribe(entry, id, &fresh)
		ack.Codes = append(ack.Codes, byte(code))
	}
	out, err := ack.Append(cl.sh.buf[:0], cl.version)
	if err != nil {
		return err
	}
	cl.write(out)
	// The packet may have a filter many times. With many messages others have turns in between.
	fresh = slices.DeleteFunc(fresh, func(sub *subscription) bool { return cl.s.subs[sub.filter] != sub })
	for _, sub := range fresh {
		if len(fresh)*cl.sh.retained.count < 1000 {
			cl.sendRetained(sub)
		} else if err := cl.c.Ref().Tell(func(*loop.Conn) { cl.sendRetained(sub) }); err != nil {
			return err
		}
	}
	return nil
}

// sendRetained sends the messages that a subscription begins with, unless it is gone.
func (cl *client) sendRetained(sub *subscription) {
	s, now := cl.s, cl.sh.l.Now()
	if s == nil || s.subs[sub.filter] != sub {
		return
	}
	sub.begins = false
	cl.sh.retained.match(sub.filter, func(m *message) {
		if !m.expired(now) {
			cl.sh.send(s, m, options{qos: min(m.qos, sub.options.qos), retain: true, id: sub.options.id}, nil)
		}
	})
}

// subscribe adds one subscription, and to begin one that begins with retained messages.
func (cl *client) subscribe(entry mqtt.Subscription, id uint32, begin *[]*subscription) mqtt.ReasonCode {
	filter := string(entry.Filter)
	if err := mqtt.CheckFilter(entry.Filter); err != nil {
		return mqtt.TopicFilterInvalid
	}
	s, cfg := cl.s, &cl.sh.b.cfg
	name, topics := splitShared(filter)
	if cfg.denied(topics) {
		return mqtt.UnspecifiedError // why is nobody's business
	}
	old := s.subs[filter]
	if old == nil && (s.weight+weight(filter) > cfg.MaxSubscriptions || cl.sh.budget.full()) {
		return mqtt.QuotaExceeded
	}
	sub := &subscription{s: s, filter: filter, groupName: name, noLocal: entry.NoLocal,
		keepFlag: entry.RetainAsPublished, options: options{qos: entry.QoS, id: id}}
	sub.begins = name == "" && (entry.RetainHandling == 0 || entry.RetainHandling == 1 && old == nil) || old != nil && old.begins
	cl.sh.subscribe(s, sub)
	if sub.begins {
		*begin = append(*begin, sub)
	}
	return mqtt.ReasonCode(entry.QoS)
}

func (cl *client) onUnsubscribe(frame []byte) error {
	p, err := mqtt.ParseUnsubscribe(frame, cl.version)
	if err != nil {
		return err
	}
	ack := mqtt.SubAck{Type: mqtt.UNSUBACK, ID: p.ID}
	for filter := range p.All() {
		code := mqtt.NoSubscriptionExisted
		if cl.sh.unsubscribe(cl.s, string(filter)) {
			code = mqtt.Success
		}
		ack.Codes = append(ack.Codes, byte(code))
	}
	out, err := ack.Append(cl.sh.buf[:0], cl.version)
	if err == nil {
		cl.write(out)
	}
	return err
}

// send sends a PUBLISH. It returns false if the client does not take a packet of that length.
func (cl *client) send(sh *shard, out *outgoing) bool {
	dup := out.sent && out.o.qos > 0
	out.sent = true
	if packet := sh.wire.get(cl, out, dup); packet != nil {
		cl.write(packet)
		return true
	}
	p := out.publish(cl.version, sh.l.Now())
	p.Dup = dup
	alias := cl.alias(&p, out.m.topic)
	packet, err := p.Append(sh.buf[:0], cl.version)
	if err != nil || cl.maxPacket > 0 && len(packet) > cl.maxPacket { // [MQTT-3.1.2-25]
		sh.dropped++
		return false
	}
	if alias > len(cl.outAliases) { // the client learns it by this packet
		if cl.outAliases == nil {
			cl.outAliases = map[string]uint16{}
		}
		cl.outAliases[out.m.topic] = uint16(alias)
		cl.charge(costOfAlias(out.m.topic))
	}
	if cap(packet) > cap(sh.buf) && cap(packet) <= 64<<10 {
		sh.buf = packet[:0]
	}
	sh.wire.put(cl, out, dup, packet)
	cl.write(packet)
	return true
}

// alias replaces the topic of a PUBLISH by its alias, or offers one, which it returns. The first
// topics get them; 0 means none.
func (cl *client) alias(p *mqtt.Publish, topic string) int {
	alias := int(cl.outAliases[topic])
	switch {
	case alias > 0:
		p.Topic = nil
	case len(cl.outAliases) >= cl.maxAlias || cl.sh.budget.exhausted():
		return 0
	default:
		alias = len(cl.outAliases) + 1
	}
	p.Properties = append(mqtt.Properties(nil), p.Properties...).AppendNumber(mqtt.TopicAlias, uint32(alias))
	return alias
}

// wireCache holds the packets of one delivery, by version and QoS, so that a message to many
// clients is encoded once and only its packet identifier is set for each.
type wireCache struct {
	m       *message
	packets [2][3][]byte
}

func (w *wireCache) reset() { w.m = nil }

// shared returns the packet's place in the cache, or nil if it is one of its own kind.
func (w *wireCache) shared(cl *client, out *outgoing, dup bool) *[]byte {
	if dup || out.o.retain || out.o.id != 0 || cl.maxAlias > 0 || cl.maxPacket > 0 || !out.m.expires.IsZero() {
		return nil
	}
	return &w.packets[cl.version-mqtt.V311][out.o.qos]
}

func (w *wireCache) get(cl *client, out *outgoing, dup bool) []byte {
	place := w.shared(cl, out, dup)
	if place == nil || w.m != out.m || len(*place) == 0 {
		return nil
	}
	if out.o.qos > 0 {
		at := w.idAt(*place, len(out.m.topic))
		(*place)[at], (*place)[at+1] = byte(out.id>>8), byte(out.id)
	}
	return *place
}

func (w *wireCache) put(cl *client, out *outgoing, dup bool, packet []byte) {
	place := w.shared(cl, out, dup)
	if place == nil {
		return
	}
	if w.m != out.m {
		w.m = out.m
		for v := range w.packets {
			for q := range w.packets[v] {
				w.packets[v][q] = w.packets[v][q][:0]
			}
		}
	}
	*place = append((*place)[:0], packet...)
}

// idAt returns where a PUBLISH has its packet identifier: behind the length and the topic.
func (w *wireCache) idAt(packet []byte, topic int) int {
	at := 2
	for packet[at-1] >= 128 {
		at++
	}
	return at + 2 + topic
}
