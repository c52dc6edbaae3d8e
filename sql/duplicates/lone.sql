-- Pairs of pages of two hosts with the products of their words. Words of one page alone have the mean of two weights too.
-- In: lone (one, other: pages; dot, one_squares, other_squares: of the words of both; of_one: whether the word is of the
-- first page; host: of the page without the word; word, count, weight), weights, hosts (host, unseen).
select
  one, other, max(dot) as dot,
  cast(max(one_squares) + sum(case when of_one then square else 0 end) as bigint) as one_squares,
  cast(max(other_squares) + sum(case when of_one then 0 else square end) as bigint) as other_squares
from (
  select
    lone.one, lone.other, lone.dot, lone.one_squares, lone.other_squares, lone.of_one,
    cast(lone.count as bigint) * lone.count * (lone.weight + coalesce(weights.weight, hosts.unseen))
    * (lone.weight + coalesce(weights.weight, hosts.unseen)) as square
  from lone
  join hosts on hosts.host = lone.host
  left join weights on weights.host = lone.host and weights.word = lone.word
) as weighted
group by one, other
