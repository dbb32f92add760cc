// The page connects when somebody joins, and from then on comes back by itself when the connection is lost.
'use strict';
const $ = id => document.getElementById(id);
const final = new Set([1008, 4000, 4001]); // the chat does not want this page back: coming back is for the user
const key = sessionStorage.key ||= crypto.getRandomValues(new Uint32Array(4)).join('-'); // gets the name back

let me = null;      // name and room, from the join to the leave
let socket = null;
let joined = false; // the chat has let us in at least once
let tries = 0, retry = 0;
let members = new Set();
let epoch = '', last = 0; // the last message that is shown, and of which life of the server

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

const face = name => colored(make('span', [...name][0], 'face'), name);

function add(e) {
  const log = $('log'), atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  log.append(e);
  while (log.children.length > 1000) log.firstChild.remove();
  if (atEnd) log.scrollTop = log.scrollHeight;
}

const note = text => add(make('p', text, 'note'));

function showMembers() {
  $('count').textContent = members.size;
  $('members').replaceChildren(...[...members].sort().map(name => {
    const li = make('li');
    li.append(face(name), make('span', name));
    return li;
  }));
}

const events = {
  joined(e) {
    if (epoch !== e.epoch) last = 0; // the server has restarted: it counts anew
    if (joined && epoch === e.epoch && e.n - last > 50) note('some messages are missing here');
    epoch = e.epoch;
    tries = 0;
    members = new Set(e.names);
    showMembers();
    $('state').textContent = '';
    $('title').textContent = e.room;
    document.title = '#' + e.room;
    $('entry').hidden = true;
    $('chat').hidden = false;
    if (!joined) $('text').focus();
    joined = true;
  },
  say(e) {
    if (e.n <= last) return; // it is in the history, and was shown before
    last = e.n;
    const message = colored(make('div', undefined, 'message'), e.from), body = make('div'), time = make('time');
    time.textContent = new Date(e.at).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit' });
    body.append(make('b', e.from), time, make('p', e.text));
    message.append(face(e.from), body);
    if (e.from === me.name) message.classList.add('mine');
    add(message);
  },
  in(e) { members.add(e.from); showMembers(); note(e.from + ' has joined'); },
  out(e) { members.delete(e.from); showMembers(); note(e.from + ' has left'); },
  note(e) { note(e.text); },
  refused(e) { leave(e.text); },
};

function connect() {
  const ws = socket = new WebSocket(location.origin.replace(/^http/, 'ws') + '/ws');
  ws.onopen = () => ws.send(JSON.stringify({ type: 'join', key, ...me }));
  ws.onmessage = m => { if (ws === socket) { const e = JSON.parse(m.data); events[e.type]?.(e); } };
  ws.onclose = e => {
    if (ws !== socket) return; // we have left
    if (final.has(e.code)) return leave(e.reason);
    // Doubling, at most half a minute, and a random part: not all pages are to come back at once.
    const wait = Math.min(30, 0.5 * 2 ** tries++) * (0.5 + Math.random());
    const text = joined ? 'connection lost' : 'the server does not answer';
    $('state').textContent = $('refused').textContent = text + ', trying again …';
    retry = setTimeout(connect, wait * 1000);
  };
}

function leave(why = '') {
  clearTimeout(retry);
  const ws = socket;
  me = socket = null;
  joined = false;
  last = tries = 0;
  ws?.close();
  $('log').replaceChildren();
  $('refused').textContent = why;
  $('chat').hidden = true;
  $('entry').hidden = false;
  document.title = 'chat';
  $('name').focus();
}

$('join').addEventListener('submit', e => {
  e.preventDefault();
  clearTimeout(retry);
  const ws = socket;
  socket = null;
  ws?.close();
  me = { name: $('name').value.trim(), room: $('room').value.trim() };
  $('refused').textContent = '';
  tries = 0;
  connect();
});

$('say').addEventListener('submit', e => {
  e.preventDefault();
  const text = $('text').value.trim();
  if (!text || socket?.readyState !== WebSocket.OPEN) return; // it stays, to be sent later
  socket.send(JSON.stringify({ type: 'say', text }));
  $('text').value = '';
  $('log').scrollTop = $('log').scrollHeight;
});

$('text').addEventListener('keydown', e => {
  if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) {
    e.preventDefault();
    $('say').requestSubmit();
  }
});

$('leave').addEventListener('click', () => leave());
