"""Pages of strangers who want that a reader's browser runs something, or asks another address."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import cycle, islice

from crawl_lib.urls import canonicalize
from tests.export.crawls import Capture
from tests.index.made import HEAD, linking, page
from tests.text.pdfs import pdf

BIDI = "\u202e\u2066\u2067\u200f\u061c"
ATTACKS = [
    "<script>{js}</script>",
    "<script src={evil}/s></script>",
    "<img src={evil}/img onerror='{js}'>",
    "<img srcset='{evil}/1x 1x, {evil}/2x 2x' src=x>",
    "<svg onload='{js}'><image href={evil}/svg /><use href={evil}/use#x /><script>{js}</script></svg>",
    "<math><mtext><style><img title='</style><img src={evil}/m onerror=\"{js}\">'></mtext></math>",
    "<iframe src={evil}/frame></iframe><iframe srcdoc='<script>{js}</script>'></iframe>",
    "<iframe src='javascript:{js}'></iframe>",
    "<object data={evil}/o></object><embed src={evil}/e><applet code={evil}/a></applet>",
    "<video src={evil}/v autoplay poster={evil}/p></video><audio src={evil}/au autoplay></audio>",
    "<link rel=preconnect href={evil}><link rel=dns-prefetch href=//dns.evil.example>",
    "<link rel=preload as=image href={evil}/l><link rel=prefetch href={evil}/l2>",
    "<link rel=modulepreload href={evil}/l3><link rel=manifest href={evil}/l4><link rel=icon href={evil}/l5>",
    "<link rel=stylesheet href={evil}/css><style>@import url({evil}/i);</style>",
    "<style>@font-face{{font-family:x;src:url({evil}/f)}}p{{font-family:x;background:url({evil}/b)}}</style>",
    "<p style='background:url({evil}/st);behavior:url({evil}/htc)'>x</p>",
    "<meta http-equiv=refresh content='0;url={evil}/refresh'>",
    "<meta http-equiv=refresh content='0;url=javascript:{js}'>",
    "<meta http-equiv=x-dns-prefetch-control content=on><a href=//dns2.evil.example>x</a>",
    "<meta name=referrer content=unsafe-url><meta http-equiv=Set-Cookie content='a=b'>",
    "<base href={evil}/base/><img src=relative><a href=relative>x</a>",
    "<form action={evil}/form><input autofocus onfocus='{js}'><button formaction='javascript:{js}'>x</button></form>",
    "<a href='javascript:{js}' target=_blank>x</a><a href='data:text/html,<script>{js}</script>'>x</a>",
    "<a ping={evil}/ping href={evil}/clicked>x</a>",
    "<body background={evil}/bg onload='{js}' onpageshow='{js}'>",
    "<details open ontoggle='{js}'><summary>x</summary></details>",
    "<noscript><img src={evil}/no></noscript><template><script>{js}</script></template>",
    "<frameset><frame src={evil}/f></frameset>",
    '<script type=speculationrules>{{"prefetch":[{{"urls":["{evil}/rules"]}}]}}</script>',
    "</title></textarea></style></script><script>{js}</script>",
    "\"'><script>{js}</script>",
    "{{{{7*7}}}}${{7*7}}<%= 7 %>{{% raw %}}",
    "<!--><script>{js}</script>-->",
    "<![CDATA[<script>{js}</script>]]>",
    "<ScRiPt\x00>{js}</sCrIpT>",
    "&lt;script&gt;{js}&lt;/script&gt;",
    "<bdi dir=rtl>" + BIDI + "</bdo></bdi><mark>",
]
ENCODINGS = [
    "utf-8",
    "utf-16",
    "utf-7",
    "windows-1252",
    "shift_jis",
    "iso-2022-jp",
    "x-user-defined",
    "no-such",
]
JS = "fetch(`{0}/ran`);alert(1);new Image().src=`{0}/ran2`"


def hostile(evil: str, count: int, seed: int) -> list[Capture]:
    """Pages with the word `lava`. `evil`: an origin that no browser must ask, such as `http://evil.example:1`."""
    chance = random.Random(seed)
    attacks = [attack.format(evil=evil, js=JS.format(evil)) for attack in ATTACKS]
    return [
        _page(number, attack, chance) for number, attack in enumerate(islice(cycle(attacks), count))
    ]


def _page(number: int, attack: str, chance: random.Random) -> Capture:
    place = chance.randrange(5)
    inner = f"{attack} lava {number} {BIDI} \x01\x1b[31m"
    url = canonicalize(
        f"http://host-{number % 40}.example/{number}?{attack if place == 1 else ''}"[:1500]
    )
    title = f"{attack} {BIDI}Lava\x07" if place < 3 else "Lava"
    if number % 20 == 19:
        return Capture(
            url,
            pdf("lava of paper", title="(" + attack),
            head=HEAD.format("").encode(),
            mime="application/pdf",
        )
    if place == 3:
        return linking(
            url, inner, {f"http://host-0.example/{number}?linked": f"{attack}{BIDI}"}, title=title
        )
    capture = page(url, f"<h1>{attack}</h1>{inner}", title=title, head=attack if place == 4 else "")
    return _broken(capture, chance) if number % 3 == 0 else capture


def _broken(capture: Capture, chance: random.Random) -> Capture:
    """The page in an encoding that it does not have, with bytes that are none."""
    encoding = chance.choice(ENCODINGS)
    capture.head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset={encoding}\r\n\r\n".encode()
    )
    capture.body = capture.body.replace(b"lava", b"lava \xff\xfe\xc0\x80\x1b$B ")
    return capture


WORDS = [
    "lava",
    "volcano",
    "site:",
    "site:a.example",
    "-",
    '"',
    "OR",
    "title:",
    "type:pdf",
    "after:",
    "2020-13",
    "*",
    "similar:",
]


def queries(count: int, seed: int) -> Iterator[str]:
    """Queries of operators, words, and any characters at all."""
    chance = random.Random(seed)
    for _ in range(count):
        parts = [
            chance.choice(WORDS) if chance.random() < 0.7 else _text(chance)
            for _ in range(chance.randrange(1, 12))
        ]
        yield chance.choice(["", " ", " ", " "]).join(parts)


def _text(chance: random.Random) -> str:
    highest = chance.choice([0x7F, 0x2FF, 0xFFFF, 0x10FFFF])
    chars = (chr(chance.randrange(highest)) for _ in range(chance.randrange(1, 20)))
    return "".join(char if not 0xD800 <= ord(char) < 0xE000 else BIDI for char in chars)
