"""The scanner of links and the inner loop of ranks, in C without dependencies, and what compiles them.

`tokens.c` cuts a page into tokens, `text.c` reads references and white space, `tags.c` says which elements matter,
`foreign.c` follows SVG and MathML, `links.c` collects links and descriptions, `sketch.c` says in 64 bytes which words a
page has; `compile` makes `liblinks.so.1` of them.
A page of 18 KB takes it 38 us; all of `parse_html` takes a third of what it took with lexbor's tree. `sums.c`, in the
same library, is what `crawl_lib.ranks` does most of the time.
"""
