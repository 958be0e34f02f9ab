-- Which entities each step of some runs mentions.
with wanted as (
    select unnest($runs::varchar[]) as run_id, unnest($numbers::bigint[]) as number
)
select distinct w.number as run, m.step, m.entity_id
from mentions m
join wanted w on w.run_id = m.run_id
order by w.number, m.step, m.entity_id
