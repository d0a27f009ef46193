// Live updates and the quick filter. The pages are complete without this file.
"use strict";
(() => {
  const main = () => document.getElementById("main");
  const live = document.getElementById("live");
  const say = (text, cls) => { live.textContent = text; live.className = "live " + cls; };

  // Filter rows at once while typing; the form does the same on the server.
  const filter = () => {
    const form = document.getElementById("filter");
    if (!form) return;
    const words = form.elements.q.value.toLowerCase().split(/\s+/).filter(Boolean);
    const state = form.elements.state.value, kind = form.elements.kind.value;
    let shown = 0;
    for (const row of document.querySelectorAll("#objects tbody tr")) {
      const text = row.textContent.toLowerCase();
      const keep = words.every((w) => text.includes(w)) &&
        (!state || row.dataset.state === state) && (!kind || row.dataset.kind === kind);
      row.hidden = !keep;
      if (keep) shown++;
    }
    const count = document.getElementById("count");
    if (count) count.textContent = String(shown);
  };
  const wire = () => {
    const form = document.getElementById("filter");
    if (!form) return;
    form.addEventListener("input", filter);
    form.addEventListener("submit", (e) => {
      e.preventDefault();
      const q = new URLSearchParams(new FormData(form));
      for (const k of ["q", "state", "kind"]) if (!q.get(k)) q.delete(k);
      history.replaceState(null, "", location.pathname + (q.size ? "?" + q : ""));
      // Rows that the server left out are only in the unfiltered page.
      refresh();
    });
  };

  let version = 0, timer = 0, running = false, again = false, took = 0;
  async function refresh() {
    if (running) { again = true; return; }
    running = true;
    const begun = performance.now();
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
      if (!answer.ok) throw new Error(String(answer.status));
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = page.getElementById("main");
      if (!next) return;
      const active = document.activeElement;
      const id = active && main().contains(active) ? active.id : "";
      const form = document.getElementById("filter");
      const kept = form ? [form.elements.q.value, form.elements.state.value, form.elements.kind.value] : null;
      const open = new Set([...document.querySelectorAll("details[open][id]")].map((d) => d.id));
      const caret = active && active.selectionStart;
      main().replaceWith(document.adoptNode(next));
      const now = document.getElementById("filter");
      if (kept && now) [now.elements.q.value, now.elements.state.value, now.elements.kind.value] = kept;
      for (const d of document.querySelectorAll("details[id]")) if (open.has(d.id)) d.open = true;
      if (id) {
        const el = document.getElementById(id);
        if (el) { el.focus(); if (caret != null && el.setSelectionRange) el.setSelectionRange(caret, caret); }
      }
      wire();
      filter();
      say("live", "good");
    } catch (e) {
      say("not updated", "warn");
    } finally {
      running = false;
      took = performance.now() - begun;
      if (again) { again = false; soon(); }
    }
  }
  // A large page is asked for less often: it takes at most a tenth of the time.
  // A timer that runs is left alone, or changes that never cease would starve it.
  const soon = () => {
    if (timer) return;
    timer = setTimeout(() => { timer = 0; refresh(); }, Math.min(15000, Math.max(150, 10 * took)));
  };

  wire();
  filter();
  if (!window.EventSource) return;
  // A browser grants few connections to one host, so only a page that is seen
  // holds one.
  let source = null;
  const connect = () => {
    if (source || document.hidden) return;
    source = new EventSource("/events");
    source.addEventListener("hello", (e) => {
      const v = JSON.parse(e.data).version;
      say("live", "good");
      if (v !== (version || Number(document.body.dataset.version))) soon();
      version = v;
    });
    source.addEventListener("change", (e) => {
      const change = JSON.parse(e.data), only = document.body.dataset.cluster;
      version = change.version;
      if (!only || change.clusters.includes(only) || change.clusters.includes("")) soon();
    });
    source.onerror = () => say("not connected", "warn");
  };
  const disconnect = () => { if (source) source.close(); source = null; };
  document.addEventListener("visibilitychange", () => { if (document.hidden) disconnect(); else connect(); });
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", connect);
  connect();
})();
