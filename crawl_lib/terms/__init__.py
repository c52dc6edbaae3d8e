"""Terms: the pages with each word, and the weight of the word in each page (tf-idf).

How data flows: `update_terms` reads the words of the captures that count (`crawl_lib.captures`) out of their texts, and
makes a version of the table `terms`, a row for each word. `postings_of` looks words up. `search_terms` adds up the
weights of several words by page, and multiplies each sum by the page's rank.
"""

from crawl_lib.terms.asking import postings_of, search_terms
from crawl_lib.terms.table import MAX_POSTINGS, TERMS, TERMS_OUTPUT, TERMS_SCHEMA, update_terms
