"""Seeds: read from lines and files, made canonical, and left in the crawl directory for the nodes that own them."""
