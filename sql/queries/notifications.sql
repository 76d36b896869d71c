-- Notifications of users, and the presets that belong to them.

-- name: insert_notifications
-- Notifies the users $1, from the user $2: subject, message, collection and item are $3 to $6. Returns for each recipient
-- the id, and the address if the user wants notifications by mail.
WITH recipients AS (
    SELECT id, email, email_notifications AND status = 'active' AS wants_mail
    FROM system_users
    WHERE id = ANY ($1::uuid[])
),
notified AS (
    INSERT INTO system_notifications (recipient, sender, subject, message, collection, item)
    SELECT id, $2::uuid, $3::text, $4::text, $5::text, $6::text
    FROM recipients
)
SELECT id::text, CASE WHEN wants_mail THEN email END
FROM recipients
ORDER BY id;

-- name: find_notification_mails
-- Address, subject and message of the notifications $1 whose recipients want them by mail.
SELECT users.email, notifications.subject, coalesce(notifications.message, '')
FROM system_notifications AS notifications
JOIN system_users AS users ON users.id = notifications.recipient
WHERE notifications.id = ANY ($1::integer[])
  AND users.email_notifications
  AND users.status = 'active'
  AND users.email IS NOT NULL
ORDER BY notifications.id;

-- name: find_notification_owners
-- Recipient and sender of notifications, by their keys.
SELECT id::text, recipient::text, sender::text
FROM system_notifications
WHERE id = ANY ($1::integer[]);

-- name: find_preset_owners
-- User and role of presets, by their keys.
SELECT id::text, "user"::text, role::text
FROM system_presets
WHERE id = ANY ($1::integer[]);
