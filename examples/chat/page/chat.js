// The page connects when somebody joins, and from then on comes back by itself when the connection is
// lost. What is shown and what is typed live as long as the tab, and survive a reload.
'use strict';
const $ = id => document.getElementById(id);
const final = new Set([1008, 4000, 4001]); // the chat does not want this page back: coming back is for the user
const key = sessionStorage.chatKey ||= crypto.getRandomValues(new Uint32Array(4)).join('-'); // gets the name back
const maxText = 2000;   // characters, as the server counts them
const openWithin = 5e3; // milliseconds for a connection to be let in

let me = null;      // name and room, from the join to the leave
let socket = null;
let joined = false; // the chat has let us in at least once
let tries = 0, retry = 0, patience = 0;
let members = new Set();
let epoch = '', last = 0; // the last message that is shown, and of which life of the server
let complete = 0;         // the number of the last message of the history
let said = [];            // the last messages
let out = [];             // what was typed and has not come back
const ids = new Set();    // of messages that have come back

function make(tag, text, className) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text; // text, never HTML: names and messages are harmless
  if (className) e.className = className;
  return e;
}

function colored(e, name) {
  let hue = 0;
  for (const c of name) hue = (hue * 31 + c.codePointAt(0)) % 360;
  e.style.setProperty('--hue', hue);
  return e;
}

const letter = name => (Intl.Segmenter ? new Intl.Segmenter().segment(name)[Symbol.iterator]().next().value.segment : [...name][0]);

function face(name) {
  const e = colored(make('span', letter(name), 'face'), name);
  e.ariaHidden = 'true'; // the name stands beside it
  return e;
}

// add appends e, but what has not arrived yet stays the last.
function add(e) {
  const log = $('log'), atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  log.insertBefore(e, out[0]?.node || null);
  while (log.children.length > 1000) log.firstChild.remove();
  if (atEnd) log.scrollTop = log.scrollHeight;
}

const note = text => add(make('p', text, 'note'));

function state(text) {
  for (const e of [$('state'), $('refused')]) if (e.textContent !== text) e.textContent = text;
}

function showMembers() {
  $('count').textContent = members.size;
  $('members').replaceChildren(...[...members].sort().map(name => {
    const li = make('li');
    li.append(face(name), make('span', name));
    return li;
  }));
}

function message(from, at, text) {
  const e = colored(make('div', undefined, 'message'), from), body = make('div'), time = make('time');
  time.textContent = new Date(at).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
  body.append(make('b', from), time, make('p', text));
  e.append(face(from), body);
  e.classList.toggle('mine', from === me.name);
  return e;
}

function show(e) {
  said.push(e);
  if (said.length > 200) said.shift();
  add(message(e.from, e.at, e.text));
}

// showChat shows the chat in place of the form.
function showChat() {
  $('title').textContent = me.room;
  document.title = '#' + me.room;
  $('entry').hidden = true;
  $('chat').hidden = false;
}

// wait shows what was typed until it comes back with a number, and sends it if it can.
function wait(id, text) {
  const node = message(me.name, Date.now(), text);
  node.classList.add('waiting');
  $('log').append(node);
  out.push({ id, text, node });
  $('log').scrollTop = $('log').scrollHeight;
  transmit();
}

// transmit sends what was not yet sent on this connection. Before the history is complete nobody
// knows whether it has arrived by an earlier one.
function transmit() {
  if (!joined || socket?.readyState !== WebSocket.OPEN || last < complete) return;
  for (const o of out) {
    if (o.by === socket) continue;
    o.by = socket;
    socket.send(JSON.stringify({ type: 'say', id: o.id, text: o.text }));
  }
}

// arrived forgets what has not to be sent again, and returns it.
function arrived(id) {
  const o = out.find(o => o.id === id);
  out = out.filter(other => other !== o);
  o?.node.remove();
  return o;
}

const events = {
  joined(e) {
    if (epoch !== e.epoch) last = 0; // the server has restarted: it counts anew
    if (joined && epoch === e.epoch && e.n - last > 50) note('some messages are missing here');
    epoch = e.epoch;
    complete = e.n || 0;
    tries = 0;
    clearTimeout(patience);
    members = new Set(e.names);
    showMembers();
    state('');
    me.name = e.from;
    me.room = e.room;
    showChat();
    if (!joined) $('text').focus();
    joined = true;
    transmit();
  },
  say(e) {
    if (e.n <= last) return; // it is in the history, and was shown before
    last = e.n;
    if (e.id) arrived(e.id);
    if (!e.id || !ids.has(e.id)) show(e); // it may have been sent to two lives of the server
    ids.add(e.id);
    transmit();
  },
  in(e) { members.add(e.from); showMembers(); note(e.from + ' has joined'); },
  out(e) { members.delete(e.from); showMembers(); note(e.from + ' has left'); },
  unsaid(e) {
    const text = arrived(e.id)?.text;
    if (text === undefined) return;
    note(`Nobody has heard “${text.slice(0, 60)}”: ${e.text}.`);
    $('text').value ||= text; // to be changed, or sent again
  },
  refused(e) { leave(e.text); },
};

function connect() {
  clearTimeout(retry);
  if (tries === 0) state('connecting …');
  complete = Infinity; // until the chat says
  const ws = socket = new WebSocket(location.origin.replace(/^http/, 'ws') + '/ws');
  patience = setTimeout(() => lost(ws), openWithin);
  ws.onopen = () => ws.send(JSON.stringify({ type: 'join', key, ...me }));
  ws.onmessage = m => { if (ws === socket) { const e = JSON.parse(m.data); events[e.type]?.(e); } };
  ws.onclose = e => { if (ws === socket && final.has(e.code)) leave(e.reason); else lost(ws); };
}

// lost tries again, unless the user has left.
function lost(ws) {
  if (ws !== socket) return;
  drop();
  // Doubling, at most half a minute, and a random part: not all pages are to come back at once.
  const wait = Math.min(30, 0.5 * 2 ** tries++) * (0.5 + Math.random());
  state((joined ? 'connection lost' : 'the server does not answer') + ', trying again …');
  retry = setTimeout(connect, wait * 1000);
}

function drop() {
  clearTimeout(retry);
  clearTimeout(patience);
  const ws = socket;
  socket = null;
  ws?.close();
}

function leave(why = '') {
  drop();
  me = null;
  joined = false;
  last = tries = 0;
  said = [];
  out = [];
  state(why);
  $('log').replaceChildren();
  $('chat').hidden = true;
  $('entry').hidden = false;
  document.title = 'chat';
  $('name').focus();
}

$('join').addEventListener('submit', e => {
  e.preventDefault();
  drop();
  me = { name: $('name').value.trim(), room: $('room').value.trim() };
  tries = 0;
  connect();
});

$('say').addEventListener('submit', e => {
  e.preventDefault();
  const text = $('text').value.trim();
  if (!text) return;
  $('text').value = '';
  wait(crypto.getRandomValues(new Uint32Array(3)).join('-'), text);
});

$('text').addEventListener('input', () => {
  const n = [...$('text').value.trim()].length;
  $('text').setCustomValidity(n > maxText ? `A message has at most ${maxText} characters, this one has ${n}.` : '');
});

$('text').addEventListener('keydown', e => {
  if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) {
    e.preventDefault();
    $('say').requestSubmit();
  }
});

$('leave').addEventListener('click', () => leave());

addEventListener('pagehide', () => {
  sessionStorage.chat = JSON.stringify({ me, epoch, last, said, out: out.map(({ id, text }) => [id, text]), joined, draft: $('text').value });
});

const before = JSON.parse(sessionStorage.chat || '{}');
if (before.me) { // a reload
  ({ me, epoch, last, joined } = before);
  $('name').value = me.name;
  $('room').value = me.room;
  $('text').value = before.draft;
  if (joined) showChat();
  for (const e of before.said) { ids.add(e.id); show(e); }
  for (const o of before.out) wait(...o);
  connect();
}
