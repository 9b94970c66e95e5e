"""Render a result as a standalone page: one file that needs neither network nor other files."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from cudnn_resolve.report.result_html import render as fragment

_CSS = """
:root{color-scheme:light dark;--fg:#1f2328;--bg:#fff;--soft:#f6f8fa;--line:#d0d7de;--mute:#57606a}
@media(prefers-color-scheme:dark){:root{--fg:#e6edf3;--bg:#0d1117;--soft:#161b22;--line:#30363d;--mute:#9198a1}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:72rem;padding:1.5rem;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.4rem;margin:0 0 1rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}
b,strong{font-size:1.05rem}
table{border-collapse:collapse;margin:.5rem 0;display:block;overflow-x:auto;max-width:100%}
td,th{border-bottom:1px solid var(--line);padding:.25rem .75rem .25rem 0;text-align:left;vertical-align:top}
td:last-child:not(:first-child){overflow-wrap:anywhere;min-width:7rem}
@media(max-width:40rem){td,th{overflow-wrap:break-word;padding-right:.6rem}.wide{display:none}.narrow{display:block!important}
table:not(:has(th)) tr:has(>td:is(:nth-child(3),:nth-child(4)):last-child){display:flex;flex-wrap:wrap;border-bottom:1px solid var(--line)}
table:not(:has(th)) tr:has(>td:is(:nth-child(3),:nth-child(4)):last-child)>td{border:0}
table:not(:has(th)) td:is(:nth-child(3),:nth-child(4)):last-child{flex:0 0 100%}}
main>div>b:first-child,main>div>p:first-child>b{display:block;padding:.6rem .9rem;background:var(--soft)}
main>div>b:first-child,main>div>p:first-child>b{border-left:.3rem solid;border-radius:6px;margin-bottom:.5rem}
svg{max-width:none}li{margin:.2rem 0}td:first-child{color:var(--mute)}
pre{background:var(--soft);border:1px solid var(--line);border-radius:6px;padding:.75rem 5rem .75rem .75rem}
pre{overflow-x:auto;position:relative;white-space:pre-wrap}
summary{cursor:pointer;color:var(--mute)}
input,button{font:inherit;color:inherit;background:var(--soft);border:1px solid var(--line);border-radius:6px;padding:.25rem .6rem}
pre button{position:absolute;top:.4rem;right:.4rem;font-size:.8rem}
footer{margin-top:3rem;color:var(--mute);font-size:.85rem}
@media(prefers-color-scheme:dark){
.good{color:#3fb950!important}.bad{color:#f85149!important}.warn{color:#d29922!important}.quiet{color:#9198a1!important}}
[hidden]{display:none!important}
@media print{body{max-width:none;padding:0}button,input{display:none}}
"""
_SCRIPT = """
addEventListener('beforeprint', () => {
  for (const details of document.querySelectorAll('details')) details.open = true;
});
const scrolling = new ResizeObserver(entries => {
  for (const { target } of entries) { // a table that scrolls must be reachable by keyboard
    target.scrollWidth > target.clientWidth ? target.tabIndex = 0 : target.removeAttribute('tabindex');
  }
});
for (const table of document.querySelectorAll('table')) scrolling.observe(table);
for (const pre of document.querySelectorAll('pre')) {
  const button = document.createElement('button'), text = pre.textContent;
  button.type = 'button';
  button.textContent = 'Copy';
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const range = document.createRange();
      range.selectNodeContents(pre.firstChild);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      document.execCommand('copy');
    }
    button.textContent = 'Copied';
    setTimeout(() => button.textContent = 'Copy', 1500);
  };
  pre.append(button);
}
for (const table of document.querySelectorAll('table')) {
  const rows = [...table.rows];
  if (rows.length < 12) continue;
  const input = document.createElement('input');
  input.type = 'search';
  input.placeholder = 'Filter ' + rows.length + ' rows';
  input.setAttribute('aria-label', 'Filter the rows of the table below');
  input.oninput = () => {
    const wanted = input.value.toLowerCase();
    for (const row of rows) row.hidden = !row.querySelector('th') && !row.textContent.toLowerCase().includes(wanted);
  };
  table.before(input);
}
"""


def render(result: Mapping[str, Any], version: str) -> str:
    """Render the page of the object that `--format json` prints."""
    title = _title(result)
    return frame(title, f"<h1>{escape(title)}</h1>\n{fragment(result)}", _CSS, _SCRIPT, f"cudnn-resolve {version}")


def frame(title: str, body: str, style: str, script: str, foot: str, *, head: str = "", menu: str = "") -> str:  # noqa: PLR0913 - its parts
    """Assemble a page; `head` adds to its head, and `menu` precedes the body."""
    return _FRAME.format(title=escape(title), body=body, style=style, script=script, foot=escape(foot), head=head, menu=menu)


_FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
{head}<title>{title}</title>
<style>{style}</style>
</head>
<body>
{menu}<main>
{body}
</main>
<footer>{foot}</footer>
<script>{script}</script>
</body>
</html>
"""


def _title(result: Mapping[str, Any]) -> str:
    """The command and its subject: `cudnn-resolve plan: torch==2.6.0, tensorflow==2.18.0`."""
    verb = str(result.get("schema", "")).split("/")[1:2]
    subjects = [*result.get("targets", ()), *dict.fromkeys(verdict["what"] for verdict in result.get("verdicts", ()))]
    if "verb" in result:
        subjects.append(f"{result['verb']} of {result['hosts']} host{'' if result['hosts'] == 1 else 's'}")
    if "package" in result:
        subjects.append(str(result["package"]))
    return f"cudnn-resolve {verb[0] if verb else ''}" + (f": {', '.join(map(str, subjects))}" if subjects else "")
