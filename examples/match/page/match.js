'use strict';

const $ = id => document.getElementById(id);
const me = JSON.parse(sessionStorage.getItem('me') || 'null') || { key: crypto.getRandomValues(new Uint32Array(4)).join('-') };
const held = new Set();
let socket = null;

// play joins, and joins again when the connection is lost, also after a reload.
function play() {
  $('join').hidden = true;
  $('state').textContent = 'connecting';
  socket = new WebSocket(location.href.replace(/^http/, 'ws').replace(/[^/]*$/, 'ws'));
  socket.onopen = () => socket.send(JSON.stringify({ type: 'join', ...me }));
  socket.onmessage = e => show(JSON.parse(e.data));
  socket.onclose = e => {
    socket = null;
    $('field').hidden = true;
    if (e.code >= 4000 || e.code === 1008) {
      sessionStorage.removeItem('me');
      $('join').hidden = false;
      $('state').textContent = e.reason;
    } else {
      $('state').textContent = 'the connection is lost: trying again';
      setTimeout(play, 500 + 1000 * Math.random());
    }
  };
}

function show(players) {
  $('state').textContent = players.length + ' here';
  $('field').hidden = false;
  $('field').replaceChildren(...players.map(p => {
    const e = document.createElement('div');
    e.className = p.away ? 'player away' : 'player';
    e.textContent = p.name;
    e.style.left = p.x / 10 + '%';
    e.style.top = p.y / 10 + '%';
    return e;
  }));
}

function steer(e, down) {
  if (!socket || !e.key.startsWith('Arrow')) return;
  e.preventDefault();
  if (held.has(e.key) === down) return;
  if (down) held.add(e.key); else held.delete(e.key);
  const n = key => held.has('Arrow' + key) ? 1 : 0;
  socket.send(JSON.stringify({ type: 'steer', dx: n('Right') - n('Left'), dy: n('Down') - n('Up') }));
}
addEventListener('keydown', e => steer(e, true));
addEventListener('keyup', e => steer(e, false));

$('join').onsubmit = e => {
  e.preventDefault();
  Object.assign(me, { name: $('name').value, match: $('match').value });
  sessionStorage.setItem('me', JSON.stringify(me));
  play();
};
if (me.name) play();
