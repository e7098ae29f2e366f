"""The style of pages of molecules, beyond that of every report."""

from __future__ import annotations

from ._molecule_canvas import DARK, LIGHT, Paper


def _ramp(paper: Paper) -> str:
    return f"linear-gradient(to right,{','.join(paper.area(share) for share in (-1.0, 0.0, 1.0))})"


STYLE = (
    """
.molecule{display:grid;grid-template-columns:minmax(0,3fr) minmax(0,2fr);gap:1rem 2rem;align-items:start}
.molecule .left{position:sticky;top:1rem;min-width:0}
.molecule figure{position:relative}
.wide{overflow-x:auto}
.wide svg{display:block;width:100%;height:auto}
.sheet{margin:0 auto}
.marks{fill:none;pointer-events:visible;stroke:transparent}
.marks a{outline:none;cursor:pointer}
.marks a:is(.on,:focus-visible) circle{stroke:var(--focus);stroke-width:2.5}
.marks a:is(.on,:focus-visible) path{stroke:var(--focus);stroke-opacity:.45}
.tip{position:absolute;transform:translate(-50%,calc(-100% - 6px));margin:0;padding:.15rem .55rem;border-radius:6px;
background:var(--ink);color:var(--paper);font-size:.8125rem;pointer-events:none;max-width:100%;width:max-content;
font-variant-numeric:tabular-nums}
.molecule .key{margin:.6rem 0 .3rem;max-width:30rem}
.charts{min-width:0}
.charts h3{margin:0 0 .2rem}
.rows{position:relative;max-height:15rem;overflow-y:auto;margin:0 0 1.1rem;border-block:1px solid var(--line);
scrollbar-width:thin}
.rows .bars th{width:36%;white-space:nowrap}
.rows .bars td:last-child{width:5.4rem;padding-right:.4rem;white-space:nowrap}
.rows a{color:inherit;text-decoration:none;display:block}
.rows a:focus-visible{outline:2px solid var(--focus);outline-offset:-2px}
.rows tr:is(.on,:target){background:var(--card);box-shadow:inset 3px 0 var(--focus)}
.rows .bars th{padding-left:.4rem}
.rows td:nth-child(2){position:relative;background:linear-gradient(var(--line),var(--line)) center/1px 100% no-repeat}
.rows i{position:absolute;top:.2rem;bottom:.2rem;border-radius:2px}
.rows .p{left:50%}
.rows .n{right:50%}
.molecule .p{background:FOR}
.molecule .n{background:AGAINST}
.molecule .at{background:var(--ink);transform:translateX(-50%);min-width:3px}
.molecule .run th{width:27%}
.molecule .run td{white-space:nowrap;overflow-wrap:normal}
.molecule .run td:nth-child(n+3){width:6.4rem;font-size:.8125rem;vertical-align:middle}
.molecule .run td:nth-child(4){width:5.4rem}
.accounts{font-variant-numeric:tabular-nums;margin:0 0 1.2rem}
.accounts .first{border-top:1px solid var(--line)}
.accounts th,.accounts td{padding:.2rem 1rem .2rem 0}
.accounts :is(th,td):nth-child(n+3){text-align:right;white-space:nowrap;width:1%}
.accounts thead th{font-weight:400;color:var(--soft)}
.accounts th:first-child{white-space:nowrap;width:1%}
.accounts td:nth-child(2){min-width:6rem;overflow-wrap:break-word}
.cells{width:100%;max-width:44rem;display:block;font-size:.62px}
.cells text{fill:var(--soft);pointer-events:none;text-anchor:end}
.cells .above text{text-anchor:start}
.grid-lines{fill:none;stroke:var(--line);stroke-width:.04}
.matrix{margin-top:1rem}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(11rem,100%),1fr));gap:.8rem;margin:0 0 1rem}
.cards a{display:flex;flex-direction:column;color:inherit;text-decoration:none;border:1px solid var(--line);
border-radius:8px;padding:.6rem .7rem;font-size:.875rem;line-height:1.35;min-width:0;overflow-wrap:anywhere}
.cards a:is(:hover,:focus-visible){border-color:var(--focus);outline:none}
.cards svg{width:100%;height:8rem;margin-bottom:.4rem}
.cards span{color:var(--soft)}
[data-molecule]{scroll-margin-top:1rem}
.key .ramp{background:RAMP}
@media(prefers-color-scheme:dark){.key .ramp{background:DARK_RAMP}.molecule .p{background:DARK_FOR}
.molecule .n{background:DARK_AGAINST}}
@media(max-width:46rem){.molecule{display:block}.molecule .left{display:contents}
.molecule figure{position:sticky;background:var(--paper);z-index:1;top:0;padding-bottom:.4rem}
.wide{max-height:45vh;overflow-y:auto}
.charts{margin-top:1.5rem}
.accounts{font-size:.8125rem;table-layout:fixed}
.accounts th,.accounts td{padding-right:.5rem}
.accounts :is(th,td):nth-child(n){width:auto;overflow-wrap:break-word;hyphens:auto}
.accounts :is(th,td):nth-child(2){width:40%}
.accounts thead th:nth-child(n+3){white-space:normal;vertical-align:bottom}
.accounts th:first-child{white-space:normal;width:20%}
.rows{max-height:11rem}}
""".strip()
    .replace("DARK_RAMP", _ramp(DARK))
    .replace("RAMP", _ramp(LIGHT))
    .replace("DARK_FOR", DARK.lines[1])
    .replace("DARK_AGAINST", DARK.lines[0])
    .replace("FOR", LIGHT.lines[1])
    .replace("AGAINST", LIGHT.lines[0])
)
"""Plain CSS."""
