"""The search page in Debian's Chromium (Playwright): what its pages do, and how they look."""
