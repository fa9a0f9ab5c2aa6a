'use strict';
// Everything is drawn by the server, which has escaped it. This puts it in place, and lets ages tick.
const mine = document.body.dataset, $ = id => document.getElementById(id), rows = document.querySelector('tbody');
const filter = document.querySelector('input'), opened = Date.now();
let skew = mine.now - opened, heard = opened, tried = opened, calm = true, source, typed;

function age(s) {
  const n = (a, b) => Math.floor(s / a) % b;
  return s < 60 ? `${s}s` : s < 3600 ? `${n(60, 60)}m ${s % 60}s` : s < 86400 ? `${n(3600, 24)}h ${n(60, 60)}m` : `${n(86400, 1e9)}d ${n(3600, 24)}h`;
}
function tick() {
  const now = Date.now(), old = now - heard > 8000;
  for (const e of document.querySelectorAll('time')) {
    const text = age(Math.max(0, Math.floor((now + skew - Date.parse(e.dateTime)) / 1000)));
    if (e.textContent !== text) e.textContent = text;
  }
  $('offline').hidden = !old;
  const stale = $('head').querySelector('.banner');
  if (heard > opened) {
    $('live').className = old || stale ? 'off' : 'on';
    $('live').textContent = old ? `offline for ${age(Math.floor((now - heard) / 1000))}` : stale ? 'out of date' : 'live';
  }
  if (now - Math.max(heard, tried) > 8000) open();
}
function show(m) {
  if (m.version !== mine.version && Date.now() - opened > 10000) return location.reload();
  heard = Date.now(), skew = m.now - heard;
  if (m.title) document.title = m.title;
  for (const part of ['head', 'foot']) if (part in m) $(part).innerHTML = m[part];
  const parsed = document.createElement('template');
  parsed.innerHTML = m.rows || '';
  for (const row of [...parsed.content.children]) {
    const old = $(row.id);
    if (!calm && old?.dataset.state !== row.dataset.state) row.classList.add('fresh');
    old ? old.replaceWith(row) : rows.append(row);
  }
  (m.order || []).forEach((id, at) => rows.children[at] === $(id) || rows.insertBefore($(id), rows.children[at]));
  while (m.order && rows.children.length > m.order.length) rows.lastElementChild.remove();
  calm = false;
  tick();
}
function open() {
  source?.close();
  tried = Date.now(), calm = true;
  source = new EventSource('events' + location.search);
  source.onmessage = e => show(JSON.parse(e.data));
}
filter?.form.addEventListener('submit', e => e.preventDefault());
filter?.addEventListener('input', () => {
  clearTimeout(typed);
  typed = setTimeout(() => {
    history.replaceState(null, '', filter.value ? '?q=' + encodeURIComponent(filter.value) : location.pathname);
    open();
  }, 150);
});
for (const type of ['keydown', 'keyup']) document.addEventListener(type, e => {
  if (e.key !== '/' || !filter || e.target === filter) return;
  type === 'keyup' ? filter.focus() : e.preventDefault();
});
addEventListener('pageshow', open);
setInterval(tick, 1000);
