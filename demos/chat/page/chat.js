'use strict';
const $ = id => document.getElementById(id);
const state = {
  ws: null, nick: '', room: '', names: new Set(), tries: 0, timer: 0, full: 0, kickAt: 0, lastFrom: '', lastAt: 0, day: '',
  last: '', // the place of the last message, to ask for what follows
  said: [], // what the log shows of messages, for a reload
  out: new Map(), nextId: Date.now(), // what was typed and is not known to have arrived; a reload must not use a number again
  servers: [location.origin], server: 0, heard: 0, beat: 0,
  rooms: new Map(), seen: {}, fold: null, renamed: new Map(), typing: new Map(), typed: 0,
};

// What the server means by the codes of its close frames; whether to come back by oneself.
const closes = {
  4000: ['You were sent away: ', false], 4001: ['The connection was lost: ', true], 4002: ['You were sent away: ', false],
  4003: ['You have left: ', false], 4004: ['This page was left: ', false], 4005: ['', false], 4006: ['', true], 1001: ['', true],
};

function el(tag, cls, text) { // text is always text: nothing that anybody says becomes HTML
  const e = document.createElement(tag);
  if (cls) e.className = cls;
  if (text !== undefined) e.textContent = text;
  return e;
}
const decode = s => { try { return decodeURIComponent(s); } catch { return s; } };
function stored(key) { try { return localStorage.getItem(key) || ''; } catch { return ''; } }
function store(key, value) { try { localStorage.setItem(key, value); } catch { } }

// By this secret the page gets its nickname back after it has lost its server. Each tab has its own.
const key = (() => {
  const make = () => [...crypto.getRandomValues(new Uint8Array(16))].map(b => b.toString(16).padStart(2, '0')).join('');
  try {
    const had = sessionStorage.getItem('chat-key') || make();
    sessionStorage.setItem('chat-key', had);
    return had;
  } catch { return make(); }
})();

// Colours of names: any hue, and as light as can be read (4.5 to 1).
function hue(name) {
  let h = 0x811c9dc5;
  for (const c of name.toLowerCase()) h = Math.imul(h ^ c.codePointAt(0), 0x01000193);
  return ((h ^ h >>> 15) >>> 0) % 360;
}
function rgb(h, s, l) {
  const f = n => { const k = (n + h / 30) % 12; return l - s * Math.min(l, 1 - l) * Math.max(-1, Math.min(k - 3, 9 - k, 1)); };
  return [f(0), f(8), f(4)];
}
function luminance(c) {
  const [r, g, b] = c.map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b;
}
function contrast(a, b) { const [x, y] = [luminance(a), luminance(b)]; return (Math.max(x, y) + .05) / (Math.min(x, y) + .05); }
function readable(h, s, l, step, against) {
  while (l > 0 && l < 1 && contrast(rgb(h, s, l), against) < 4.6) l += step;
  return `rgb(${rgb(h, s, l).map(v => Math.round(v * 255)).join(' ')})`;
}
const pageLight = [.925, .93, .97], pageDark = [.13, .14, .227]; // the least that names are written on
const palette = new Map();
function colours(node, name) {
  const h = hue(name);
  if (!palette.has(h)) {
    palette.set(h, { '--face': readable(h, .55, .5, -.01, [1, 1, 1]), '--ink': readable(h, .6, .42, -.01, pageLight), '--ink-dark': readable(h, .75, .66, .01, pageDark) });
  }
  for (const [k, v] of Object.entries(palette.get(h))) node.style.setProperty(k, v);
}
const clock = at => new Date(at || Date.now()).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });

// The log.
const atEnd = () => $('log').scrollHeight - $('log').scrollTop - $('log').clientHeight < 80;
function toEnd() { $('log').scrollTop = $('log').scrollHeight; $('newer').hidden = true; }
function add(node, mine) {
  const log = $('log'), end = atEnd();
  log.append(node);
  for (const p of state.out.values()) if (p.node) log.append(p.node); // what has not arrived stays last
  while (log.childElementCount > 500) log.firstElementChild.remove();
  if (end || mine) toEnd(); else $('newer').hidden = false;
}
$('log').addEventListener('scroll', () => { if (atEnd()) $('newer').hidden = true; });
$('newer').onclick = () => { toEnd(); $('say').focus(); };
function event(text, cls) { state.lastFrom = ''; state.fold = null; const e = el('div', 'event ' + (cls || ''), text); e.dir = 'auto'; add(e); return e; }
function rule(text) { state.lastFrom = ''; state.fold = null; add(el('div', 'rule', text)); }
function day(at) {
  const d = new Date(at || Date.now()), name = d.toDateString();
  if (name === state.day) return;
  const first = state.day === '' && name === new Date().toDateString();
  state.day = name;
  if (!first) rule(d.toLocaleDateString([], { weekday: 'long', day: 'numeric', month: 'long', year: 'numeric' }));
}
// Who comes and goes, one behind the other, is one line.
function coming(name, verb, why) {
  if (!state.fold) state.fold = { items: [], node: event('') , };
  const f = state.fold;
  f.items.push({ name, verb, why });
  const runs = [];
  for (const i of f.items) {
    const last = runs[runs.length - 1];
    if (last && last.verb === i.verb && !last.why && !i.why) { if (!last.names.includes(i.name)) last.names.push(i.name); }
    else runs.push({ verb: i.verb, names: [i.name], why: i.why });
  }
  f.node.textContent = runs.slice(-6).map(r => {
    const more = r.names.length > 8 ? ` and ${r.names.length - 8} others` : '';
    return `${r.names.slice(0, 8).join(', ')}${more} ${r.names.length > 1 ? 'have' : 'has'} ${r.verb} ${r.why || ''}`.trim();
  }).join(' · ');
  if (atEnd()) toEnd();
}
const addresses = /\bhttps?:\/\/[^\s<>"']+[^\s<>"'.,;:!?)\]}]/g;
function say(node, text) { // with links that can be clicked
  let from = 0;
  for (const m of text.matchAll(addresses)) {
    const a = el('a', '', m[0]);
    a.href = m[0]; a.target = '_blank'; a.rel = 'noopener noreferrer';
    node.append(text.slice(from, m.index), a);
    from = m.index + m[0].length;
  }
  node.append(text.slice(from));
}
const letters = Intl.Segmenter && new Intl.Segmenter();
const letter = name => (letters ? letters.segment(name)[Symbol.iterator]().next().value.segment : [...name][0]).toUpperCase();
const word = /[\p{L}\p{N}_]/u;
function mentions(text) {
  const t = text.toLowerCase(), n = state.nick.toLowerCase();
  for (let i = t.indexOf(n); n && i >= 0; i = t.indexOf(n, i + 1)) {
    if (!word.test(t[i - 1] || ' ') && !word.test(t[i + n.length] || ' ')) return true;
  }
  return false;
}
function bubble(e, isPrivate, follows) {
  const m = el('div', 'msg' + (follows ? ' more' : '') + (isPrivate ? ' private' : ''));
  colours(m, e.from);
  const who = el('div', 'who'), name = el('bdi', '', isPrivate ? `${e.from} → ${e.to}` : e.from), p = el('p');
  who.append(name, el('time', '', clock(e.at)));
  p.dir = 'auto';
  say(p, e.text);
  const face = el('div', 'face', letter(e.from));
  face.setAttribute('aria-hidden', 'true');
  m.append(face, who, p);
  return m;
}
function message(e, isPrivate) {
  state.said.push([e, isPrivate]);
  if (state.said.length > 200) state.said.shift();
  day(e.at);
  state.fold = null;
  const key = (isPrivate ? 'private ' + e.to + ' ' : '') + e.from;
  const follows = key === state.lastFrom && e.at - state.lastAt < 300000;
  state.lastFrom = key; state.lastAt = e.at;
  const m = bubble(e, isPrivate, follows), mine = e.from === state.nick;
  if (!mine && (isPrivate || mentions(e.text))) {
    m.classList.add('mention');
    if (document.hidden && !e.old) document.title = `(!) ${e.from}: ${e.text}`.slice(0, 60);
  }
  add(m, mine && !e.old);
}

// What was typed and has not arrived: shown as such, and said again after a lost connection.
function post(text) { transmit(...hold(key.slice(0, 8) + '.' + state.nextId++, text, state.room, Date.now())); }
function hold(id, text, room, at) {
  const p = { text, node: null, at, ws: null, room: '' };
  state.out.set(id, p);
  const to = /^\/msg\s+(\S+)\s+([^]+)/.exec(text);
  if (text[0] !== '/' || to) {
    p.node = bubble({ from: state.nick || '?', to: to && to[1], text: to ? to[2] : text, at: p.at }, !!to, false);
    p.room = to ? '' : room;
    p.node.classList.add('pending');
    $('log').append(p.node);
  }
  toEnd();
  return [id, p];
}
function transmit(id, p) {
  if (state.joined && send(`/id ${id} ${p.text}`)) p.ws = state.ws;
}
function arrived(id) {
  const p = state.out.get(id);
  if (!p) return;
  if (p.node) p.node.remove();
  state.out.delete(id);
}
function failed(id, why, perhaps) {
  const p = state.out.get(id);
  if (!p) return;
  if (!p.node) { state.out.delete(id); return; }
  p.failed = why;
  p.node.classList.add('failed');
  const again = el('button', 'plain', 'Say it again');
  again.onclick = () => { p.node.remove(); state.out.delete(id); post(p.text); };
  p.node.append(el('small', '', `${perhaps ? 'Perhaps nobody' : 'Nobody'} has heard this: ${why} `), again);
}

function clear() {
  $('log').replaceChildren();
  state.said = []; state.lastFrom = ''; state.fold = null; state.day = '';
}

// What the server sends.
const seenIds = new Set();
function fresh(id) { // what was said again because its answer was lost comes once
  if (!id) return true;
  if (seenIds.has(id)) return false;
  seenIds.add(id);
  if (seenIds.size > 2000) seenIds.delete(seenIds.values().next().value);
  return true;
}
const on = {
  hello(e) {
    state.nick = e.from; state.full = e.full; state.tries = 0;
    for (const a of e.also || []) if (!state.servers.includes(a)) state.servers.push(a);
    $('me').textContent = e.from;
    alive(e.full);
    send('/rooms');
  },
  join(e) {
    if (e.n) state.last = e.n;
    if (!e.old) present(e.from, true);
    if (e.old && !state.missed || state.renamed.get(e.from) === 'joined') return;
    if (e.from !== state.nick) { day(e.at); coming(e.from, 'joined'); }
  },
  leave(e) {
    if (e.n) state.last = e.n;
    if (!e.old) present(e.from, false);
    if (e.old && !state.missed || state.renamed.get(e.from) === 'left') return;
    day(e.at); coming(e.from, 'left', e.text);
  },
  nick(e) {
    if (e.n) state.last = e.n;
    if (e.old && !state.missed) return;
    if (e.from === state.nick) { state.nick = e.to; $('me').textContent = e.to; store('nick', e.to); }
    for (const [n, verb] of [[e.from, 'left'], [e.to, 'joined']]) { // is what other servers see of it
      state.renamed.set(n, verb); setTimeout(() => state.renamed.delete(n), 5000);
    }
    if (state.names.delete(e.from)) present(e.to, true);
    event(`${e.from} is now ${e.to}`);
  },
  who(e) {
    if (e.asked) { event(`In ${e.room}: ${(e.names || []).join(', ')}`); return; }
    state.names = new Set(e.names || []);
    state.missed = !!e.since;
    state.joined = true;
    const here = e.room || '';
    if (here !== state.shown) {
      for (const [id, p] of state.out) if (p.taken) arrived(id);
      state.shown = here;
      clear();
    } else if (!e.since && here) clear(); // the room remembers more
    state.room = here;
    if (here) { store('room', here); if (decode(location.hash.slice(1)) !== here) history.replaceState(null, '', '#' + encodeURIComponent(here)); }
    else history.replaceState(null, '', location.pathname + location.search);
    if (state.again) rule('connected again'); else if (here) event(`You have joined ${here}`);
    state.again = false;
    $('room').textContent = here ? '#' + here : 'no room';
    title();
    if (e.n && !e.since) state.last = ''; // the history follows
    state.at = e.n;
    people(); roomList();
    status(here ? `You are in ${here}` : '');
    send('/rooms');
    send('/beat sync'); // its answer comes behind what was missed
  },
  gap() { rule('some of what was said is lost'); },
  say(e) {
    state.last = e.n || state.last;
    if (e.id) arrived(e.id);
    state.typing.delete(e.from); typists();
    if (!e.old) { const r = state.rooms.get(state.room); if (r) { r.said++; state.seen[state.room] = r.said; } }
    if (fresh(e.id)) message(e);
  },
  private(e) { if (e.id) arrived(e.id); if (fresh(e.id)) message(e, true); },
  note(e) { event(e.text); },
  ack(e) { // what was said here comes back with its place in the room
    const p = state.out.get(e.id);
    if (p && p.room && p.room === state.shown) p.taken = true; else arrived(e.id);
  },
  unsaid(e) { failed(e.id, e.to, e.perhaps); },
  typing(e) { if (e.room === state.room) { state.typing.set(e.from, Date.now()); typists(); } },
  rooms(e) {
    state.rooms = new Map((e.rooms || []).map(r => [r.name, r]));
    const here = state.rooms.get(state.room);
    if (here) state.seen[state.room] = here.said;
    store('seen', JSON.stringify(state.seen));
    roomList();
    if (e.asked) event('Rooms: ' + ((e.rooms || []).map(r => `${r.name} (${r.here})`).join(', ') || 'none'));
  },
  pong(e) { alive(e.idle); link('on', e.rtt < 10 ? e.rtt.toFixed(1) + ' ms' : Math.round(e.rtt) + ' ms'); },
  beat(e) {
    if (e.id !== 'sync') return;
    if (state.at) state.last = state.last || state.at;
    for (const [id, p] of state.out) { // again what an earlier connection may have lost
      if (p.failed || p.taken || p.ws === state.ws) continue;
      if (p.ws && p.room && p.room !== state.shown) failed(id, `you have left ${p.room}`); else transmit(id, p);
    }
  },
};
function title() { document.title = (state.room ? '#' + state.room + ' · ' : '') + 'loopwheel chat'; }
document.addEventListener('visibilitychange', () => { if (!document.hidden) title(); });

function present(name, here) {
  if (here) state.names.add(name); else state.names.delete(name);
  people();
}
// A list that has the pointer or the focus holds still: what one is about to choose must not become another.
function still(list) {
  const held = list.children.length && list.matches(':hover, :focus-within');
  if (held) list.onpointerleave = list.onfocusout = () => { list.onpointerleave = list.onfocusout = null; people(); };
  return held;
}
let peopleDue = 0;
function people() { // once per frame: a room may fill all at once
  if (!peopleDue) peopleDue = requestAnimationFrame(() => {
    peopleDue = 0;
    roomList();
    $('count').textContent = $('here').textContent = state.names.size;
    if (still($('people'))) return;
    const names = [...state.names].sort((a, b) => a.localeCompare(b)).slice(0, 200);
    $('people').replaceChildren(...names.map(n => {
      const b = el('button'), li = el('li');
      colours(b, n);
      b.dataset.name = n;
      b.title = n === state.nick ? 'You' : 'Write to ' + n;
      const s = el('span', '', n === state.nick ? n + ' (you)' : n);
      s.dir = 'auto';
      b.append(el('i'), s);
      b.onclick = () => { drawer(false); address(n);  };
      li.append(b);
      return li;
    }));
  });
}
// address puts a recipient, or the user's own new name, before what has been typed.
function address(name) {
  const text = box.value.replace(/^\/(nick|msg\s+\S+)\s/, '');
  box.value = (name === state.nick ? '/nick ' : `/msg ${name} `) + text;
  box.focus();
}
function roomList() {
  let unread = 0;
  const rooms = [...state.rooms.values()];
  if (state.room && !state.rooms.has(state.room)) rooms.push({ name: state.room, here: state.names.size, said: 0 });
  rooms.sort((a, b) => a.name.localeCompare(b.name));
  const items = rooms.map(r => {
    const li = el('li'), b = el('button'), n = el('span', '', '#' + r.name);
    n.dir = 'auto';
    b.append(n);
    const behind = r.name === state.room || !(r.name in state.seen) ? 0 : r.said - state.seen[r.name];
    if (behind > 0) { unread += behind; const c = el('b', 'num', behind > 99 ? '99+' : behind); c.setAttribute('aria-label', behind + ' unread'); b.append(c); }
    b.append(el('small', 'num', (r.name === state.room ? state.names.size : r.here) + ' here'));
    if (r.name === state.room) b.setAttribute('aria-current', 'true');
    b.onclick = () => { drawer(false); if (r.name !== state.room) enter(r.name); $('say').focus(); };
    li.append(b);
    return li;
  });
  if (!still($('rooms'))) $('rooms').replaceChildren(...items);
  $('count').classList.toggle('unread', unread > 0);
}
function enter(room) { history.pushState(null, '', '#' + encodeURIComponent(room)); post('/join ' + room); }
setInterval(() => send('/rooms'), 15000);
function typists() {
  const now = Date.now();
  for (const [n, at] of state.typing) if (now - at > 4500) state.typing.delete(n);
  const names = [...state.typing.keys()].slice(0, 3);
  $('typing').textContent = names.length ? `${names.join(', ')} ${names.length > 1 ? 'are' : 'is'} typing …` : '';
}
setInterval(typists, 1000);

// The connection.
function status(text) { if ($('status').textContent !== text) $('status').textContent = text; }
function link(cls, text) {
  if (!$('link').classList.contains(cls || 'x')) status({ on: 'connected', off: 'offline' }[cls] || 'connecting');
  $('link').className = 'pill num ' + cls; $('link').querySelector('b').textContent = text;
}
function banner(text, button, bad, soon) { // soon changes each second, and is not read out
  const b = $('banner'), [said, then] = b.querySelectorAll('span');
  if (!text && b.contains(document.activeElement)) box.focus();
  if (b.hidden !== !text) b.hidden = !text;
  b.className = bad ? 'bad' : '';
  if (said.textContent !== (text || '')) said.textContent = text || '';
  then.textContent = soon || '';
  b.querySelector('button').textContent = button || 'Reconnect';
}
const openWithin = 5000, beatEvery = 2000, deadAfter = 5000; // ms
function connect() {
  clearTimeout(state.timer);
  drop();
  link('', 'connecting');
  const url = new URL('/ws', state.servers[state.server % state.servers.length]);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  const room = state.room || stored('room') || 'lobby';
  url.search = new URLSearchParams({ nick: state.nick || stored('nick'), room, key, since: room === state.shown ? state.last : '' });
  const ws = state.ws = new WebSocket(url);
  let opened = false;
  state.heard = state.beat = 0;
  const patience = setTimeout(() => { if (!opened) lost(ws, 'the server does not answer'); }, openWithin);
  ws.onopen = () => { opened = true; clearTimeout(patience); link('on', 'online'); banner(''); state.again = !!state.shown; };
  ws.onmessage = m => {
    state.heard = performance.now();
    const e = JSON.parse(m.data);
    if (on[e.t]) on[e.t](e);
  };
  ws.onclose = e => { clearTimeout(patience); closed(e, opened); };
}
// drop forgets the connection, whatever it still says.
function drop() {
  const ws = state.ws;
  state.ws = null; state.joined = false;
  if (!ws) return;
  ws.onclose = ws.onmessage = ws.onopen = null;
  ws.close();
}
function lost(ws, why) {
  if (state.ws !== ws) return;
  const opened = ws.readyState === WebSocket.OPEN;
  drop();
  closed({ code: 4001, reason: why }, opened);
}
// The heartbeat: a server that is stopped keeps its connections, and says nothing on them.
setInterval(() => {
  const ws = state.ws, now = performance.now();
  if (!ws || ws.readyState !== WebSocket.OPEN) return;
  if (state.beat && state.heard < state.beat) {
    if (now - state.beat > deadAfter) lost(ws, 'the server has stopped answering');
    return;
  }
  if (now - state.heard < beatEvery && state.heard) return;
  state.beat = now;
  send('/beat ' + Math.round(now));
}, 1000);
function closed(e, opened) {
  state.ws = null; state.joined = false;
  $('idle').hidden = true;
  state.kickAt = 0;
  link('off', 'offline');
  const [why, again] = closes[e.code] || ['', true];
  const reason = why + (e.reason || (opened ? 'the connection has ended' : 'the server cannot be reached'));
  if (e.code === 4005) { ask(e.reason); return; }
  if (opened) event(sentence(reason), 'bad');
  if (!again) { state.names.clear(); people(); banner(sentence(reason), 'Come back', true); $('banner').querySelector('button').focus(); return; }
  state.server++; // the next one, if there are several
  // Back off, and spread: a server that has just come up must not get everybody in one instant.
  const wait = Math.min(15000, 400 * 2 ** state.tries++) * (.6 + .8 * Math.random());
  const until = Date.now() + wait;
  const tick = () => {
    const left = until - Date.now();
    if (left <= 0) return connect();
    banner(sentence(reason), 'Now', true, `Trying again in ${Math.ceil(left / 1000)} s`);
    state.timer = setTimeout(tick, Math.min(left, 500));
  };
  tick();
}
const sentence = s => s[0].toUpperCase() + s.slice(1);
function send(text) {
  if (!state.ws || state.ws.readyState !== WebSocket.OPEN) return false;
  state.ws.send(text);
  return true;
}
// A page that is left, or kept for the back button, has no connection; one that is shown again gets one.
addEventListener('pagehide', () => {
  clearTimeout(state.timer);
  drop();
  try {
    sessionStorage.setItem('chat', JSON.stringify({ nick: state.nick, room: state.shown, last: state.last, said: state.said, draft: box.value,
      out: [...state.out].map(([id, p]) => [id, p.text, p.room, p.at, p.failed]) }));
  } catch { }
});
addEventListener('pageshow', e => { if (e.persisted && state.nick) connect(); });

// The countdown. The server has the real one; each pong brings it.
function span(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return s + ' s';
  const m = Math.floor(s / 60);
  return m < 60 ? `${m}:${String(s % 60).padStart(2, '0')}` : `${Math.floor(m / 60)} h ${m % 60} min`;
}
function alive(ms) { state.kickAt = performance.now() + ms; countdown(); }
function countdown() {
  if (!state.kickAt) return;
  const left = Math.max(0, state.kickAt - performance.now()), p = $('idle');
  p.hidden = false;
  p.classList.toggle('low', left < Math.min(30000, state.full / 3));
  p.querySelector('b').textContent = span(left);
  p.querySelector('.left').style.strokeDashoffset = 100 - 100 * Math.min(1, left / state.full);
}
setInterval(countdown, 500);

// The user.
const box = $('say');
const maxText = 1000; // characters of a message, as the server counts them
function tooLong(text) {
  const n = [...text.replace(/^\/msg\s+\S+\s+/, '')].length;
  return n > maxText ? `A message has at most ${maxText} characters, this one has ${n}.` : '';
}
function grow() { box.style.height = 'auto'; box.style.height = Math.min(box.scrollHeight + 2, innerHeight * .3) + 'px'; }
box.addEventListener('input', () => {
  grow();
  $('long').textContent = tooLong(box.value.trim());
  if (box.value && box.value[0] !== '/' && Date.now() - state.typed > 3000) { state.typed = Date.now(); send('/typing'); }
});
box.addEventListener('keydown', e => { // Enter sends, with Shift it is a line
  if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); document.querySelector('form.talk').requestSubmit(); }
});
document.querySelector('form.talk').onsubmit = ev => {
  ev.preventDefault();
  const text = box.value.trim();
  if (!text || tooLong(text)) return;
  post(text);
  state.typed = 0;
  if (!/^\/(rooms|typing|beat)\b/.test(text) && state.ws) alive(state.full);
  box.value = text.startsWith('/msg ') ? text.split(' ', 2).join(' ') + ' ' : '';
  grow();
};
$('banner').querySelector('button').onclick = () => { state.tries = 0; connect(); box.focus(); };

// The side is a drawer on a phone: the focus goes into it, stays, and comes back.
const narrow = matchMedia('(max-width: 860px)');
function drawer(show) {
  const was = document.body.classList.contains('drawer');
  document.body.classList.toggle('drawer', show && narrow.matches);
  $('more').setAttribute('aria-expanded', show);
  document.querySelector('main').inert = show && narrow.matches;
  $('side').inert = narrow.matches && !show;
  if (show && !was) $('side-top').focus(); else if (was && !show) $('more').focus();
}
narrow.onchange = () => drawer(false);
drawer(false);
$('more').onclick = () => drawer(!document.body.classList.contains('drawer'));
$('veil').onclick = () => drawer(false);
addEventListener('keydown', e => {
  if (e.key === 'Escape') drawer(false);
  if ($('enter').open || e.ctrlKey || e.metaKey || e.altKey || e.key.length !== 1 || document.body.classList.contains('drawer')) return;
  if (!/^(INPUT|TEXTAREA|BUTTON|A)$/.test(document.activeElement.tagName)) box.focus(); // typing anywhere is talking
});
addEventListener('hashchange', () => {
  const room = decode(location.hash.slice(1));
  if (room && room !== state.room) post('/join ' + room);
});

// ask asks for a nickname and a room; wrong is what is wrong with those that were given.
function ask(wrong) {
  banner('');
  $('wrong').hidden = !wrong;
  $('wrong').textContent = wrong ? sentence(wrong) : '';
  $('nick').value = state.nick || $('nick').value;
  if (!$('enter').open) $('enter').showModal();
  $('nick').focus(); $('nick').select();
}
$('enter').oncancel = e => e.preventDefault();
$('enter').onclose = () => {
  state.nick = $('nick').value.trim();
  store('nick', state.nick);
  state.room = $('into').value.trim().replace(/^#/, '');
  connect();
  box.focus();
};
try { state.seen = JSON.parse(stored('seen') || '{}'); } catch { }
const query = new URLSearchParams(location.search);
$('nick').value = query.get('nick') || stored('nick');
$('into').value = decode(location.hash.slice(1)) || stored('room') || 'lobby';
let had = null; // what the page had before it was reloaded
try { had = JSON.parse(sessionStorage.getItem('chat')); } catch { }
if (had && had.room && [had.room, ''].includes(decode(location.hash.slice(1))) && [had.nick, null].includes(query.get('nick'))) {
  state.nick = had.nick;
  state.room = state.shown = had.room;
  state.last = had.last;
  box.value = had.draft;
  for (const [e, isPrivate] of had.said) { fresh(e.id); message({ ...e, old: true }, isPrivate); }
  for (const [id, text, room, at, why] of had.out) { hold(id, text, room, at); if (why) failed(id, why); }
  $('room').textContent = '#' + state.room;
  $('me').textContent = state.nick;
  title();
  connect();
} else if (query.get('nick')) { $('enter').onclose(); } else { ask(''); }
