#include "draw.h"
#include "generated.h"

static u8 changed_cell; /* cell + 1, or 0 */
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
    changed_cell = 0;
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
    u8 tens = 0;
    while (number >= 10) {
        number -= 10;
        ++tens;
    }
    at[0] = SIGN_DIGIT_0 + tens;
    at[1] = SIGN_DIGIT_0 + number;
}

static void draw_status(void) {
    u8 i, way;
    for (i = 0; i != 4; ++i)
        TILE_MAP[1 + i] = i < health ? SIGN_FULL : SIGN_EMPTY;
    TILE_MAP[7] = SIGN_SMALL_GEM;
    draw_number(TILE_MAP + 8, gems);
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
    draw_number(TILE_MAP + 17, screens_left);
}

void cell_changed(u8 cell) {
    changed_cell = cell + 1;
}

void status_changed(void) {
    status_is_old = 1;
}

void show_changes(void) {
    if (status_is_old) {
        draw_status();
        status_is_old = 0;
    } else if (changed_cell) {
        u8 cell = changed_cell - 1, row = 0, column = cell;
        while (column >= 10) {
            column -= 10;
            ++row;
        }
        draw_cell(TILE_MAP + (2 + 2 * row) * MAP_WIDTH + 2 * column, cells[cell]);
        changed_cell = 0;
    }
}

/* ---- sprites ---- */

static u8 *next_sprite;

static void put(u8 x, u8 y, u8 tile, u8 flags) {
    u8 *sprite = next_sprite;
    sprite[0] = y + 32; /* 16 by the console's rule, 16 for the status line */
    sprite[1] = x + 8;
    sprite[2] = tile;
    sprite[3] = flags;
    next_sprite = sprite + 4;
}

static void put_wide(u8 x, u8 y, u8 tile, u8 flags) {
    if (flags) { /* turned around: the halves change places */
        put(x, y, tile + 2, flags);
        put(x + 8, y, tile, flags);
    } else {
        put(x, y, tile, 0);
        put(x + 8, y, tile + 2, 0);
    }
}

#define TURNED_X 0x20
#define TURNED_Y 0x40

static const u8 player_tiles[] = {SPRITE_FRONT, SPRITE_BACK, SPRITE_SIDE, SPRITE_SIDE};
static const u8 pickup_tiles[] = {0, ITEM_GEM, ITEM_HEART, ITEM_KEY};

static void put_sword(void) {
    switch (facing) {
    case 0:
        put(player_x + 4, player_y + 14, ITEM_BLADE, TURNED_Y);
        break;
    case 1:
        put(player_x + 4, player_y - 14, ITEM_BLADE, 0);
        break;
    case 2:
        put(player_x - 7, player_y, ITEM_BLADE_FLAT, 0);
        break;
    default:
        put(player_x + 15, player_y, ITEM_BLADE_FLAT, TURNED_X);
    }
}

void place_sprites(void) {
    u8 i;
    u8 *end;
    next_sprite = sprite_table;
    if (!(safe_frames & 4)) /* blinks while nothing can hurt */
        put_wide(player_x, player_y, player_tiles[facing], facing == 3 ? TURNED_X : 0);
    if (sword_frames)
        put_sword();
    for (i = 0; i != ENEMIES; ++i)
        if (enemy_kind[i])
            put_wide(enemy_x[i], enemy_y[i], enemy_kind[i] == 1 ? SPRITE_SLIME : SPRITE_BEETLE, 0);
    for (i = 0; i != PICKUPS; ++i)
        if (pickup_kind[i])
            put(pickup_x[i] + 4, pickup_y[i], pickup_tiles[pickup_kind[i]], 0);
    end = sprite_table + 4 * 16;
    for (; next_sprite != end; next_sprite += 4)
        *next_sprite = 0;
}
