-- Users change colours and fonts of their themes.

ALTER TABLE system_users
    ADD COLUMN theme_light_overrides json,
    ADD COLUMN theme_dark_overrides json;

COMMENT ON COLUMN system_users.theme_light_overrides IS 'What an app shows otherwise than theme_light says';
COMMENT ON COLUMN system_users.theme_dark_overrides IS 'What an app shows otherwise than theme_dark says';
