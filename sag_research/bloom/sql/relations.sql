-- Typed relations read from the chosen events, counted per event and rule.
with chosen as (
    select unnest($runs::varchar[]) as run_id, unnest($positions::bigint[]) as position
)
select r.source_id, r.type, r.target_id, r.run_id, r.position, r.rule, count(*) as n
from relations r
join chosen c on c.run_id = r.run_id and c.position = r.position
group by r.source_id, r.type, r.target_id, r.run_id, r.position, r.rule
order by r.run_id, r.position, r.source_id, r.type, r.target_id, r.rule
