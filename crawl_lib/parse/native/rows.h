/* The links of pages as rows of `links`. The memory of where references lead asks the caller for new ones only. */
#ifndef KRAKE_ROWS_H
#define KRAKE_ROWS_H

#include "text.h"

enum { KRAKE_KEY = 20 };

/* Rules that bar a link before its target is judged. The caller names these rules first, in this order. */
enum krake_bar { KRAKE_FREE, KRAKE_ELEMENT, KRAKE_NOFOLLOW, KRAKE_REDIRECT_LIMIT, KRAKE_SIMILAR, KRAKE_ON_REQUISITE };

/* Of a page: it says nofollow; nofollow is ignored; no further hop is followed; too many pages have the same words; its
   links are requisites: nothing bars one, no row says that one is followed, and a frame that is refused has no row; the
   page was fetched as a requisite itself. */
enum { KRAKE_SAYS_NOFOLLOW = 1, KRAKE_FOLLOWS_ALL = 2, KRAKE_NO_HOP = 4, KRAKE_IS_SIMILAR = 8, KRAKE_REQUISITES = 16,
       KRAKE_IS_REQUISITE = 32 };

/* The buffers of Arrow's columns, in the order of the schema of `links`. A text has its ends first, then its bytes. */
enum krake_column { SOURCE, TARGET, URL, ANCHOR = URL + 2, REL = ANCHOR + 2, ELEMENT = REL + 2, FOLLOWED = ELEMENT + 2,
                    RULE = FOLLOWED + 1, COLUMNS = RULE + 2 };
struct krake_block {
    struct buffer columns[COLUMNS];
    uint64_t rows;
};

/* `krake_rows_look` asks where the reference `text` leads, `krake_rows_unjudged` whether the URL `text` is followed.
   `link`: the number of the first link of the page that needs the answer. */
struct krake_ask {
    uint32_t link, number, length, is_hop;
    const unsigned char *text;
    unsigned char key[KRAKE_KEY];
};

struct krake_rule {
    const char *name;
    uint32_t length, rejected;  /* links of the last page that was written */
};

/* A function that returns a number returns -1 if memory ran out. `most_bytes`: of memory, beyond which all is forgotten
   before the next page; `secret`: a random number. */
struct krake_rows *krake_rows_new(size_t most_bytes, uint64_t secret);
void krake_rows_free(struct krake_rows *r);
/* Names the next rule, by a text that stays where it is. Returns its number. */
int64_t krake_rows_rule(struct krake_rows *r, const char *name, size_t length);

/* Begins a page. `links`: as in `struct krake_page`, unchanged until they are written; they end where one is not whole.
   `folder`: the base URL up to its last slash. `how`: a sum of the above. Returns the number of asks. */
int64_t krake_rows_look(struct krake_rows *r, const unsigned char *links, size_t length, const char *folder, size_t folder_length, int how);
const struct krake_ask *krake_rows_asks(const struct krake_rows *r);

/* Learns where the reference of an ask leads: to a URL, or (`length` 0) nowhere by a rule; -1 as `number`: no reference
   leads there. `lasts`: from all pages of the folder. Returns the number of the target. */
int64_t krake_rows_learn(struct krake_rows *r, int64_t number, const char *url, size_t length, const char *key, uint32_t rule, int lasts);

/* After all was learnt, returns the number of asks for verdicts on targets. `position`: of the page in its batch. */
int64_t krake_rows_unjudged(struct krake_rows *r, int64_t position);
/* Learns a verdict. `lasts`: for pages of any depth. */
void krake_rows_judge(struct krake_rows *r, int64_t number, int followed, uint32_t rule, int lasts);
/* Notes that a target is handed on. Returns 0 if it was already, from this position or an earlier one. */
int krake_rows_send(struct krake_rows *r, int64_t number, int64_t position);

/* Adds the rows of the page. Returns the bytes of the block. */
int64_t krake_rows_write(struct krake_rows *r, struct krake_block *block, const char *source);
const struct krake_rule *krake_rows_rules(const struct krake_rows *r);
void krake_block_free(struct krake_block *block);

#endif
