"""The style of a certificate's HTML page."""

STYLE = """\
:root { color-scheme: light dark;
  --page: #f6f7fb; --card: #fff; --text: #1c2033; --soft: #5f6680; --line: #e3e6f0; --code: #f0f2f9;
  --holds: #1f9d61; --broken: #d5344a; --warning: #c98208; --cannot-tell: #6d5bd0; --does-not-apply: #98a0b8; }
@media (prefers-color-scheme: dark) { :root {
  --page: #12141d; --card: #1b1e2b; --text: #e7e9f3; --soft: #9aa2bd; --line: #2b2f42; --code: #252a3c;
  --holds: #3ecf8a; --broken: #ff6b7d; --warning: #f2b13c; --cannot-tell: #a394ff; --does-not-apply: #6a7290; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 960px; margin: 0 auto; padding: 32px 20px 48px; }
header { background: var(--card); border: 1px solid var(--line); border-radius: 16px; padding: 26px 30px 22px;
  box-shadow: 0 1px 2px rgb(0 0 0 / 4%), 0 10px 30px rgb(20 30 80 / 6%); }
h1 { margin: 2px 0 0; font-size: 34px; line-height: 1.2; letter-spacing: -0.02em; overflow-wrap: anywhere; }
header p { margin: 4px 0 0; color: var(--soft); }
header .verdict { float: right; margin: 6px 0 0 16px; padding: 5px 14px; border-radius: 99px; font-weight: 600;
  color: #fff; background: var(--holds); }
header.broken .verdict { background: var(--broken); }
@media (prefers-color-scheme: dark) { header .verdict { color: #12141d; } }
.bar { display: flex; gap: 3px; height: 10px; margin: 20px 0 10px; }
.bar i { border-radius: 4px; min-width: 8px; }
.counts { display: flex; flex-wrap: wrap; gap: 4px 22px; margin: 0; padding: 0; list-style: none; color: var(--soft); }
.counts b { color: var(--text); }
.counts li::before { content: ""; display: inline-block; width: 9px; height: 9px; margin-right: 7px;
  border-radius: 3px; background: var(--of); }
.bar i { background: var(--of); }
.holds { --of: var(--holds); } .broken { --of: var(--broken); } .warning { --of: var(--warning); }
.cannot-tell { --of: var(--cannot-tell); } .does-not-apply { --of: var(--does-not-apply); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin-top: 16px; }
.cards div { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 14px 18px; }
.cards b { display: block; font-size: 19px; letter-spacing: -0.01em; font-variant-numeric: tabular-nums; }
.cards span { color: var(--soft); font-size: 13px; }
h2 { margin: 32px 0 10px; font-size: 18px; }
details { background: var(--card); border: 1px solid var(--line); border-radius: 12px; margin: 8px 0;
  overflow: hidden; }
details.broken, details.warning { border-color: color-mix(in srgb, var(--of) 55%, var(--line)); }
summary { display: grid; grid-template-columns: 26px 1fr auto; gap: 12px; padding: 13px 18px; cursor: pointer;
  list-style: none; color: var(--soft); overflow-wrap: anywhere; }
summary::-webkit-details-marker { display: none; }
summary b { color: var(--text); font-weight: 600; }
summary:hover { background: color-mix(in srgb, var(--of) 6%, transparent); }
.mark { width: 24px; height: 24px; border-radius: 50%; text-align: center; font-weight: 700; line-height: 24px;
  color: var(--of); background: color-mix(in srgb, var(--of) 16%, transparent); }
.outcome { color: var(--of); font-size: 13px; font-weight: 600; white-space: nowrap; }
.more { padding: 0 18px 12px 56px; }
.more table { border-collapse: collapse; width: 100%; font-size: 13.5px; margin: 2px 0 10px; }
.more th { text-align: left; width: 1%; font-weight: 500; color: var(--soft); padding: 5px 14px 5px 0;
  vertical-align: top;  white-space: nowrap; border-top: 1px solid var(--line); }
.more td { padding: 5px 0; border-top: 1px solid var(--line); overflow-wrap: anywhere; }
.more p { margin: 8px 0; color: var(--soft); }
.more .remedy { color: var(--text); padding: 9px 14px; border-radius: 8px;
  background: color-mix(in srgb, var(--of) 10%, transparent); }
.remedy::before { content: "→ "; color: var(--of); font-weight: 700; }
blockquote { margin: 10px 0; padding: 2px 0 2px 14px; border-left: 3px solid var(--line); font-style: italic; }
cite { display: block; font-style: normal; font-size: 13px; color: var(--soft); }
code { font: 0.92em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; background: var(--code);
  padding: 1px 5px; border-radius: 5px; }
td code { background: none; padding: 0; white-space: pre-wrap; }
.runs { width: 100%; border-collapse: collapse; background: var(--card); border: 1px solid var(--line);
  border-radius: 12px; font-size: 13.5px; font-variant-numeric: tabular-nums; }
.runs th, .runs td { padding: 7px 12px; text-align: right; white-space: nowrap; border-top: 1px solid var(--line); }
.runs th { color: var(--soft); font-weight: 500; border: 0; }
.runs :is(th, td):first-child, .runs :is(th, td):last-child { text-align: left; white-space: normal; }
.runs .time { width: 30%; }
.runs i { display: block; height: 9px; border-radius: 4px; background: #5b6ee1; }
footer { margin-top: 28px; color: var(--soft); font-size: 13px; }
@media (max-width: 640px) { .more { padding-left: 18px; } .more th { white-space: normal; }
  .runs .time, .runs th:nth-child(2) { display: none; } .outcome { display: none; }
  summary { grid-template-columns: 26px 1fr; } }
@media print { body { background: #fff; } details { break-inside: avoid; } }
"""
