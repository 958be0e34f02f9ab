-- Every mention of one entity, under the decisions about names.
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
)
select run_id, position, step, field, start, "end", role, rule, version, entity_id
from named
where canonical = $entity
order by run_id, position, field, start, "end", rule
