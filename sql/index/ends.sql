-- Where each redirect leads in the end, after at most five hops.
-- In: redirects (key, target).
select hop_1.key, coalesce(hop_5.target, hop_4.target, hop_3.target, hop_2.target, hop_1.target) as target
from redirects as hop_1
left join redirects as hop_2 on hop_2.key = hop_1.target
left join redirects as hop_3 on hop_3.key = hop_2.target
left join redirects as hop_4 on hop_4.key = hop_3.target
left join redirects as hop_5 on hop_5.key = hop_4.target
