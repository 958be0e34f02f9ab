select entity_id from entities
where entity_id = $entity or name = $entity
order by entity_id
