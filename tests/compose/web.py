"""A small web of several hosts for the nodes' containers: pages that link to each other, one line of output a request.

Run by the Python of an image, so without a package: `python3 web.py DELAY_S PAGES HOST...`.
"""

import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 8000
LINKS = 20


class Handler(BaseHTTPRequestHandler):
    """Answers `/` and `/NUMBER` of each host; a page links to the next ones, and the first page to all hosts."""

    protocol_version = "HTTP/1.1"
    delay_s, pages, hosts = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]

    def do_GET(self) -> None:
        """Answer one request."""
        time.sleep(self.delay_s)
        number = self.path.strip("/") or "0"
        if not number.isdigit() or int(number) >= self.pages:
            self.answer(404, "text/plain", "missing\n")
            return
        first = int(number) * LINKS + 1
        links = [f"/{page}" for page in range(first, min(first + LINKS, self.pages))]
        if number == "0":
            links += [f"http://{host}:{PORT}/" for host in self.hosts]
        words = " ".join(f"{self.headers['Host']} {number} {word}" for word in range(300))
        body = "".join(f'<p><a href="{link}">{link}</a></p>' for link in links)
        self.answer(200, "text/html", f"<html><title>{number}</title>{body}<p>{words}</p></html>")

    def answer(self, status: int, kind: str, text: str) -> None:
        """Send a whole answer."""
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    ThreadingHTTPServer(("", PORT), Handler).serve_forever()
