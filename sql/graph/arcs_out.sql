-- The arcs of the web graph by source: links of the chosen captures between two crawled pages.
-- An arc comes as often as its link is on the page; the linker, which reads them sorted, keeps the first.
-- A requisite of a page is no link. A link counts only where it is in the segment of the capture that the export chose for its page.
-- Self links are recognized by their keys: by NodeIDs, DuckDB was seen to pair all pages with all pages first.
-- In: links (rows of `links` with segment, the place of their segment in `inputs`), nodes (the export's `pages.parquet`).
select source.node_id as source, target.node_id as target
from links
join nodes as source on source.key = links.source and source.segment = links.segment
join nodes as target on target.key = links.target
where links.source <> links.target
  and coalesce(links.rule, '') <> 'requisite'
order by source, target
