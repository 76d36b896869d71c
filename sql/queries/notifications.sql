-- Notifications of users, and the presets that belong to them.

-- name: insert_notifications
-- Notifies users: sender, subject, message, collection and item of notifications are the arrays $1 to $5; the array $6
-- has recipients, and $7 for each the number of its notification, from 1. Returns for each recipient that exists the
-- number and the id, and the address if the user wants notifications by mail.
WITH notices AS (
    SELECT number, sender, subject, message, collection, item
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[]) WITH ORDINALITY
         AS notices (sender, subject, message, collection, item, number)
),
recipients AS (
    SELECT DISTINCT wanted.number, users.id, users.email,
           users.email_notifications AND users.status = 'active' AS wants_mail
    FROM unnest($6::uuid[], $7::integer[]) AS wanted (id, number)
    JOIN system_users AS users ON users.id = wanted.id
),
notified AS (
    INSERT INTO system_notifications (recipient, sender, subject, message, collection, item)
    SELECT recipients.id, notices.sender, notices.subject, notices.message, notices.collection, notices.item
    FROM recipients
    JOIN notices ON notices.number = recipients.number
    ORDER BY recipients.number, recipients.id
)
SELECT number, id::text, CASE WHEN wants_mail THEN email END
FROM recipients
ORDER BY number, id;

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
