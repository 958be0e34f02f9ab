-- Relations under the decisions about names, each with the step that shows it and the nearest two
-- mentions of its ends there.
with renamed as (
    select unnest($old::varchar[]) as entity_id, unnest($new::varchar[]) as canonical
),
root as (
    select unnest($rooted::varchar[]) as run_id, unnest($roots::varchar[]) as root
),
seen as (
    select m.*,
           case when m.kind = 'File' and starts_with(m.name, root.root || '/')
                then concat_ws('|', m.kind, m.scope, substr(m.name, length(root.root) + 2))
                else m.entity_id end as rooted_id
    from mentions m
    join runs r on r.run_id = m.run_id and not r.hidden
    left join root on root.run_id = m.run_id
    left join steps s on s.run_id = m.run_id and s.position = m.position
    where not coalesce(s.inherited, false)
),
named as (
    select seen.*, coalesce(renamed.canonical, seen.rooted_id) as canonical
    from seen
    left join renamed on renamed.entity_id = seen.rooted_id
),
pairs as (
    select r.*, s.canonical as source_canonical, t.canonical as target_canonical,
           s.field as source_field, s.start as source_start, s."end" as source_end,
           t.field as target_field, t.start as target_start, t."end" as target_end
    from relations r
    join runs on runs.run_id = r.run_id and not runs.hidden
    left join named s on s.run_id = r.run_id and s.position = r.position
                     and s.entity_id = r.source_id
    left join named t on t.run_id = r.run_id and t.position = r.position
                     and t.entity_id = r.target_id and (s.field is null or s.field = t.field)
)
select coalesce(source_canonical, b.canonical, p.source_id) as source_id, p.type,
       coalesce(target_canonical, c.canonical, p.target_id) as target_id,
       p.run_id, p.position, p.step, p.rule, coalesce(p.source_field, p.target_field) as field,
       p.source_start, p.source_end, p.target_start, p.target_end
from pairs p
left join renamed b on b.entity_id = p.source_id
left join renamed c on c.entity_id = p.target_id
qualify row_number() over (
    partition by p.run_id, p.position, p.source_id, p.type, p.target_id, p.rule
    order by abs(p.source_start - p.target_start) nulls last, p.source_start, p.target_start
) = 1
order by p.run_id, p.position, p.source_id, p.type, p.target_id, p.rule
