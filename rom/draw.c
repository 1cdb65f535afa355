#include "draw.h"
#include "generated.h"

static u8 changed_cells[2]; /* cell + 1, or 0; one stroke of the sword changes two at most */
static u8 status_is_old;

/* The copy to the sprite memory has to run from high memory: nothing else can be read meanwhile. */
static const u8 copy_sprites[] = {0x3E, 0xC0, 0xE0, 0x46, 0x3E, 0x28, 0x3D, 0x20, 0xFD, 0xC9};

static void switch_off(void) {
    while (LCD_LINE < 144 && LCD_CONTROL & 0x80)
        ;
    LCD_CONTROL = 0;
}

void set_up_pictures(void) {
    u16 i;
    switch_off();
    for (i = 0; i != sizeof copy_sprites; ++i)
        ((u8 *)0xFF80)[i] = copy_sprites[i];
    for (i = 0; i != sizeof tile_data; ++i)
        TILE_MEMORY[i] = tile_data[i];
    BACKGROUND_SHADES = 0xE4;
    SPRITE_SHADES = 0xE4;
    SCROLL_X = 0;
    SCROLL_Y = 0;
    INTERRUPTS_PENDING = 0;
    INTERRUPTS_ENABLED = 1;
    __asm__("ei");
}

/* Sleeps until the picture is finished, then hands over the sprites: the time to change what is seen. */
void wait_frame(void) {
    __asm__("halt");
    __asm__("nop");
    __asm__("call 0xFF80");
}

u8 read_buttons(void) {
    u8 pressed;
    JOYPAD = 0x20;
    pressed = JOYPAD;
    pressed = JOYPAD & 0x0F;
    JOYPAD = 0x10;
    pressed |= JOYPAD << 4;
    pressed = JOYPAD << 4 | (pressed & 0x0F);
    JOYPAD = 0x30;
    return ~pressed;
}

/* ---- whole pictures, drawn while the screen is off ---- */

void begin_drawing(void) {
    switch_off();
}

void end_drawing(void) {
    changed_cells[0] = 0;
    changed_cells[1] = 0;
    LCD_CONTROL = LCD_ON;
}

static void draw_cell(u8 *at, u8 kind) {
    u8 tile = FIRST_CELL_TILE + (kind << 2);
    at[0] = tile;
    at[1] = tile + 1;
    at[MAP_WIDTH] = tile + 2;
    at[MAP_WIDTH + 1] = tile + 3;
}

static void clear_map(void) {
    u16 i;
    for (i = 0; i != 18 * MAP_WIDTH; ++i)
        TILE_MAP[i] = SIGN_BLANK;
}

static void hide_sprites(void) {
    u8 i;
    for (i = 0; i != 160; ++i)
        sprite_table[i] = 0;
}

void draw_screen(void) {
    u8 *at = TILE_MAP + 2 * MAP_WIDTH;
    const u8 *cell = cells;
    u8 row, column;
    for (row = 0; row != 8; ++row) {
        for (column = 0; column != 10; ++column) {
            draw_cell(at, *cell);
            at += 2;
            ++cell;
        }
        at += 2 * MAP_WIDTH - 20;
    }
    for (column = 0; column != 20; ++column) {
        TILE_MAP[column] = SIGN_BLANK;
        TILE_MAP[MAP_WIDTH + column] = SIGN_LINE;
    }
    status_is_old = 1;
    show_changes();
}

void draw_title(void) {
    begin_drawing();
    clear_map();
    hide_sprites();
    draw_cell(TILE_MAP + 4 * MAP_WIDTH + 9, CELL_LIT);
    draw_words("LANTERN ISLE", 4, 8);
    draw_words("PRESS START", 4, 12);
    end_drawing();
}

void draw_words(const char *words, u8 column, u8 row) {
    u8 *at = TILE_MAP + row * MAP_WIDTH + column;
    for (; *words; ++words)
        *at++ = *words == ' ' ? SIGN_BLANK : letter_tiles[*words - 'A'];
}

/* ---- small changes, drawn between two pictures ---- */

static void draw_number(u8 *at, u8 number) {
    u8 digit = 0;
    while (number >= 100) {
        number -= 100;
        ++digit;
    }
    at[0] = digit ? SIGN_DIGIT_0 + digit : SIGN_BLANK;
    digit = 0;
    while (number >= 10) {
        number -= 10;
        ++digit;
    }
    at[1] = SIGN_DIGIT_0 + digit;
    at[2] = SIGN_DIGIT_0 + number;
}

static void draw_status(void) {
    u8 i, way;
    for (i = 0; i != HEARTS; ++i)
        TILE_MAP[i] = i < health ? SIGN_FULL : SIGN_EMPTY;
    draw_number(TILE_MAP + 7, gems);
    TILE_MAP[7] = SIGN_SMALL_GEM; /* there are never a hundred */
    TILE_MAP[12] = has_key ? SIGN_SMALL_KEY : SIGN_BLANK;
    way = 4; /* the middle of the nine signs */
    if (target_screen_x < screen_x)
        way -= 1;
    if (target_screen_x > screen_x)
        way += 1;
    if (target_screen_y < screen_y)
        way -= 3;
    if (target_screen_y > screen_y)
        way += 3;
    TILE_MAP[15] = SIGN_WAY_NW + way;
    draw_number(TILE_MAP + 16, steps_left);
}

void cell_changed(u8 cell) {
    changed_cells[changed_cells[0] ? 1 : 0] = cell + 1;
}

void status_changed(void) {
    status_is_old = 1;
}

void show_changes(void) {
    if (status_is_old) {
        draw_status();
        status_is_old = 0;
    } else if (changed_cells[0]) {
        u8 cell = changed_cells[0] - 1, row = 0, column = cell;
        while (column >= 10) {
            column -= 10;
            ++row;
        }
        draw_cell(TILE_MAP + (2 + 2 * row) * MAP_WIDTH + 2 * column, cells[cell]);
        changed_cells[0] = changed_cells[1];
        changed_cells[1] = 0;
    }
}

/* ---- sprites: each thing has its own, so that a frame writes little more than places ---- */

#define TURNED_X 0x20
#define TURNED_Y 0x40
#define DOWN_BY 32 /* 16 by the console's rule, 16 for the status line */
#define RIGHT_BY 8

#define PLAYER_SPRITE 0
#define SWORD_SPRITE 2
#define ENEMY_SPRITE(i) (3 + 2 * (i))
#define PICKUP_SPRITE(i) (7 + (i))

#define SPRITE_Y(sprite) sprite_table[4 * (sprite)]
#define SPRITE_X(sprite) sprite_table[4 * (sprite) + 1]
#define SPRITE_TILE(sprite) sprite_table[4 * (sprite) + 2]
#define SPRITE_FLAGS(sprite) sprite_table[4 * (sprite) + 3]
#define HIDE(sprite) SPRITE_Y(sprite) = 0

static const u8 player_tiles[] = {SPRITE_FRONT, SPRITE_BACK, SPRITE_SIDE, SPRITE_SIDE + 2};
static const u8 pickup_tiles[] = {0, ITEM_GEM, ITEM_HEART, ITEM_KEY};

static void place_player(void) {
    u8 y = player_y + DOWN_BY, x = player_x + RIGHT_BY, tile = player_tiles[facing];
    if (safe_frames & 4) /* blinks while nothing can hurt */
        y = 0;
    SPRITE_Y(PLAYER_SPRITE) = y;
    SPRITE_X(PLAYER_SPRITE) = x;
    SPRITE_TILE(PLAYER_SPRITE) = tile;
    SPRITE_Y(PLAYER_SPRITE + 1) = y;
    SPRITE_X(PLAYER_SPRITE + 1) = x + 8;
    if (facing == 3) { /* turned around: the halves change places */
        SPRITE_TILE(PLAYER_SPRITE + 1) = tile - 2;
        SPRITE_FLAGS(PLAYER_SPRITE) = TURNED_X;
        SPRITE_FLAGS(PLAYER_SPRITE + 1) = TURNED_X;
    } else {
        SPRITE_TILE(PLAYER_SPRITE + 1) = tile + 2;
        SPRITE_FLAGS(PLAYER_SPRITE) = 0;
        SPRITE_FLAGS(PLAYER_SPRITE + 1) = 0;
    }
}

static void put_sword(u8 x, u8 y, u8 tile, u8 flags) {
    SPRITE_Y(SWORD_SPRITE) = y + DOWN_BY;
    SPRITE_X(SWORD_SPRITE) = x + RIGHT_BY;
    SPRITE_TILE(SWORD_SPRITE) = tile;
    SPRITE_FLAGS(SWORD_SPRITE) = flags;
}

static void place_sword(void) {
    switch (facing) {
    case 0:
        put_sword(player_x + 4, player_y + 14, ITEM_BLADE, TURNED_Y);
        break;
    case 1:
        put_sword(player_x + 4, player_y - 14, ITEM_BLADE, 0);
        break;
    case 2:
        put_sword(player_x - 7, player_y, ITEM_BLADE_FLAT, 0);
        break;
    default:
        put_sword(player_x + 15, player_y, ITEM_BLADE_FLAT, TURNED_X);
    }
}

#define PLACE_ENEMY(i)                                             \
    if (enemy_kind[i]) {                                           \
        u8 y = enemy_y[i] + DOWN_BY, x = enemy_x[i] + RIGHT_BY;    \
        SPRITE_Y(ENEMY_SPRITE(i)) = y;                             \
        SPRITE_X(ENEMY_SPRITE(i)) = x;                             \
        SPRITE_Y(ENEMY_SPRITE(i) + 1) = y;                         \
        SPRITE_X(ENEMY_SPRITE(i) + 1) = x + 8;                     \
    }

/* In every frame: what moves. */
void place_sprites(void) {
    place_player();
    if (sword_frames)
        place_sword();
    else
        HIDE(SWORD_SPRITE);
    PLACE_ENEMY(0)
    PLACE_ENEMY(1)
}

/* Where something came or went: who is there, and what lies there. */
void set_out_sprites(void) {
    u8 i, tile;
    for (i = 0; i != ENEMIES; ++i) {
        tile = enemy_kind[i] == 1 ? SPRITE_SLIME : SPRITE_BEETLE;
        SPRITE_TILE(ENEMY_SPRITE(i)) = tile;
        SPRITE_TILE(ENEMY_SPRITE(i) + 1) = tile + 2;
        if (!enemy_kind[i]) {
            HIDE(ENEMY_SPRITE(i));
            HIDE(ENEMY_SPRITE(i) + 1);
        }
    }
    for (i = 0; i != PICKUPS; ++i) {
        SPRITE_Y(PICKUP_SPRITE(i)) = pickup_kind[i] ? pickup_y[i] + DOWN_BY : 0;
        SPRITE_X(PICKUP_SPRITE(i)) = pickup_x[i] + RIGHT_BY + 4;
        SPRITE_TILE(PICKUP_SPRITE(i)) = pickup_tiles[pickup_kind[i]];
    }
}
