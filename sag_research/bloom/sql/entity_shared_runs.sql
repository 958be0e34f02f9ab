-- In how many runs both entities of a pair stand.
with pair as (
    select unnest($sources::varchar[]) as source, unnest($targets::varchar[]) as target
)
select pair.source, pair.target, count(distinct a.run_id) as n
from pair
join mentions a on a.entity_id = pair.source
join mentions b on b.entity_id = pair.target and b.run_id = a.run_id
group by pair.source, pair.target
