"""The style of the report: one column of text, light or dark as the reader's system is, readable on a phone."""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--ink:#1c2128;--soft:#5d6671;--paper:#fff;--card:#f5f6f8;--line:#dfe3e8;
--good:#1a7f4b;--good-bg:#e7f5ed;--bad:#a8460b;--bad-bg:#fdf0e4;--mixed:#7a5c00;--mixed-bg:#fcf5d9;--focus:#1f6feb}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ed;--soft:#9aa4af;--paper:#14171b;--card:#1e2329;--line:#323a43;
--good:#5fd39a;--good-bg:#15302a;--bad:#f2a45f;--bad-bg:#38271a;--mixed:#e3c765;--mixed-bg:#312a14;--focus:#6aa9ff}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:64rem;margin:0 auto;padding:2.5rem 1.25rem 4rem}
h1{font-size:clamp(1.6rem,5vw,2.3rem);line-height:1.15;letter-spacing:-.02em;margin:0 0 .4rem;overflow-wrap:anywhere}
h2{font-size:1.25rem;letter-spacing:-.01em;margin:2.5rem 0 .5rem;overflow-wrap:anywhere}
h3{font-size:1rem;margin:1.5rem 0 .5rem}
h3 span{font-weight:400;color:var(--soft)}
.lead{color:var(--soft);margin:0 0 1.5rem}
.gallery{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(13.5rem,100%),1fr));gap:1rem;margin:0 0 1.5rem}
figure{margin:0;min-width:0}
img{display:block;width:100%;height:auto;border-radius:8px;background:var(--card)}
img.sharp{image-rendering:pixelated}
.marked{position:relative;container-type:inline-size}
.marked span{position:absolute;transform:translate(-50%,-50%);white-space:pre;text-align:center;color:#111;
background:rgb(255 255 255/.75);border-radius:.25em;padding:.05em .25em;
font-size:.7rem;font-size:clamp(.6rem,3.1cqw,.9rem);line-height:1.15;font-weight:650;pointer-events:none}
figcaption{margin-top:.5rem;font-size:.875rem;line-height:1.4;overflow-wrap:anywhere}
figcaption b,figcaption .note{display:block}
figcaption span{color:var(--soft)}
.ramp{display:block;height:.5rem;border-radius:4px;margin-top:.4rem}
.ends{display:flex;justify-content:space-between;font-size:.75rem;font-variant-numeric:tabular-nums}
.verdict{border-radius:8px;padding:.75rem 1rem;margin:0 0 1.25rem}
.verdict.good{background:var(--good-bg)}
.verdict.bad{background:var(--bad-bg)}
.verdict.mixed{background:var(--mixed-bg)}
.status{font-weight:650;display:inline-block}
.status::first-letter{text-transform:uppercase}
.good .status{color:var(--good)}
.bad .status{color:var(--bad)}
.mixed .status{color:var(--mixed)}
.status::after{content:"."}
table{border-collapse:collapse;width:100%;font-size:.9375rem}
th{text-align:left;font-weight:550;padding:.45rem 1rem .45rem 0;vertical-align:top}
td{padding:.45rem 1rem .45rem 0;vertical-align:top;overflow-wrap:anywhere}
.facts tr,.origin tr{border-top:1px solid var(--line)}
.facts th,.origin th{white-space:nowrap}
.facts td:nth-child(2){font-variant-numeric:tabular-nums;white-space:nowrap}
.facts td:nth-child(3),.origin th{color:var(--soft);width:99%}
.origin th{width:1%;font-weight:400}
.bars{table-layout:fixed}
.bars th{width:32%;font-weight:400;overflow-wrap:anywhere}
.bars th,.bars td{padding-top:.15rem;padding-bottom:.15rem}
.bars td:last-child{width:6rem;font-variant-numeric:tabular-nums;text-align:right;padding-right:0}
.track{position:relative;background:linear-gradient(var(--line),var(--line)) center/1px 100% no-repeat;padding:0}
.track i{position:absolute;top:.2rem;bottom:.2rem;border-radius:2px}
details{margin:0 0 1rem}
summary{cursor:pointer;color:var(--soft)}
.curves td{text-align:right;font-variant-numeric:tabular-nums}
.curves th{text-align:right}
a{color:var(--focus)}
.aside{border-left:3px solid var(--line);padding:.1rem 0 .1rem 1rem;margin:0 0 1.5rem;font-size:.9375rem}
.aside h3{margin:0 0 .4rem}
.aside p{margin:0 0 .6rem;max-width:46rem}
.aside p:last-child{margin:0}
.rest,.legend{color:var(--soft);font-size:.875rem}
pre{background:var(--card);border-radius:8px;padding:.85rem 1rem;overflow-x:auto;font-size:.875rem}
@media(max-width:40rem){main{padding-top:1.5rem}
.facts tr{display:grid;grid-template-columns:1fr auto;padding:.5rem 0}.facts th,.facts td{padding:0}
.facts td:nth-child(3){grid-column:1/-1;font-size:.875rem;width:auto}.origin th{white-space:normal}}
""".strip()
"""Plain CSS; the reader's own fonts, so that nothing needs loading."""


VIEWER = """
.viewer{display:grid;grid-template-columns:minmax(0,29rem) minmax(0,1fr);gap:1.25rem 2rem;margin:0}
.look{min-width:0}
.stage{position:relative;border-radius:8px;overflow:hidden;background:#000;line-height:0}
.stage img{border-radius:0}
.stage canvas{display:none;width:100%;height:auto;cursor:crosshair;outline-offset:-3px;touch-action:manipulation}
.stage canvas.sharp{image-rendering:pixelated}
.stage canvas.selecting{touch-action:none}
.stage canvas:focus-visible{outline:3px solid #fff;box-shadow:inset 0 0 0 5px #000}
.live .stage canvas{display:block}
.live .stage img,.live .still,.viewer:not(.live) :is(.controls,.reading,.buttons,.meaning,.scale){display:none}
.mark{position:absolute;pointer-events:none;outline:2px solid #fff;box-shadow:0 0 0 3px #000,inset 0 0 0 1px #000}
.scale .ramp{border:1px solid var(--line);height:.7rem}
.scale .ends{color:var(--soft)}
.controls fieldset{border:0;margin:0 0 .8rem;padding:0;min-width:0;display:flex;flex-wrap:wrap;gap:.35rem}
.controls fieldset[hidden],.buttons [hidden],.mark[hidden]{display:none}
.controls legend,.slide span{float:left;width:100%;padding:0;margin:0 0 .3rem;font-size:.875rem;color:var(--soft)}
.controls fieldset label{position:relative;display:inline-flex}
.controls input[type=radio]{position:absolute;inset:0;width:100%;height:100%;margin:0;opacity:0;cursor:pointer}
.controls fieldset span{padding:.3rem .75rem;border:1px solid var(--line);border-radius:999px;font-size:.875rem;
line-height:1.35}
.controls input:hover+span{border-color:var(--soft)}
.controls input:checked+span{background:var(--ink);color:var(--paper);border-color:var(--ink)}
.controls input:focus-visible+span{outline:3px solid var(--focus);outline-offset:2px}
.slide{display:block}
.slide output{color:var(--ink);font-variant-numeric:tabular-nums}
.slide input{display:block;width:100%;margin:0;accent-color:var(--focus);height:1.75rem}
.reading{background:var(--card);border-radius:8px;padding:.7rem .9rem;margin:.6rem 0 0;min-height:4.15rem;
font-size:.9375rem;line-height:1.45;font-variant-numeric:tabular-nums}
.buttons{margin:0;display:flex;gap:.5rem}
.buttons button{margin-top:.5rem}
.buttons button{font:inherit;font-size:.875rem;color:var(--ink);background:none;border:1px solid var(--line);border-radius:8px;
padding:.3rem .75rem;cursor:pointer}
.buttons button:hover{border-color:var(--soft)}
.buttons button:focus-visible{outline:3px solid var(--focus);outline-offset:2px}
.buttons button[aria-pressed=true]{background:var(--ink);color:var(--paper)}
.buttons .touch{display:none}
@media(any-pointer:coarse){.buttons .touch{display:block}.controls fieldset span{padding:.5rem .85rem}}
.meaning,.still{color:var(--soft);font-size:.875rem;margin:.4rem 0 0}
@media(max-width:46rem){.viewer{grid-template-columns:minmax(0,1fr)}.stage{max-width:34rem}}
@media(forced-colors:active){.controls input:checked+span{forced-color-adjust:none}}
""".strip()
"""For pages with a picture to look into; see :mod:`integrand.render._interactive`."""
