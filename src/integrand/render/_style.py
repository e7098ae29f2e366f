"""The style of the report: one column of text, light or dark as the reader's system is, readable on a phone."""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--ink:#1c2128;--soft:#5d6671;--paper:#fff;--card:#f5f6f8;--line:#dfe3e8;
--good:#1a7f4b;--good-bg:#e7f5ed;--bad:#a8460b;--bad-bg:#fdf0e4}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ed;--soft:#9aa4af;--paper:#14171b;--card:#1e2329;--line:#323a43;
--good:#5fd39a;--good-bg:#15302a;--bad:#f2a45f;--bad-bg:#38271a}}
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
figcaption{margin-top:.5rem;font-size:.875rem;line-height:1.4;overflow-wrap:anywhere}
figcaption b,figcaption .note{display:block}
figcaption span{color:var(--soft)}
.ramp{display:block;height:.5rem;border-radius:4px;margin-top:.4rem}
.ends{display:flex;justify-content:space-between;font-size:.75rem;font-variant-numeric:tabular-nums}
.verdict{border-radius:8px;padding:.75rem 1rem;margin:0 0 1.25rem}
.verdict.good{background:var(--good-bg)}
.verdict.bad{background:var(--bad-bg)}
.status{font-weight:650;display:inline-block}
.status::first-letter{text-transform:uppercase}
.good .status{color:var(--good)}
.bad .status{color:var(--bad)}
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
.rest,.legend{color:var(--soft);font-size:.875rem}
pre{background:var(--card);border-radius:8px;padding:.85rem 1rem;overflow-x:auto;font-size:.875rem}
@media(max-width:40rem){main{padding-top:1.5rem}
.facts tr{display:grid;grid-template-columns:1fr auto;padding:.5rem 0}.facts th,.facts td{padding:0}
.facts td:nth-child(3){grid-column:1/-1;font-size:.875rem;width:auto}.origin th{white-space:normal}}
""".strip()
"""Plain CSS; the reader's own fonts, so that nothing needs loading."""
