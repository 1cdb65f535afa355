#include "play.h"
#include "draw.h"
#include "generated.h"

#define SPEED 2        /* pixels per frame */
#define SWORD_FRAMES 8
#define SAFE_FRAMES 90 /* after an enemy's touch */
#define REACH 14       /* of the sword, from the player's place */

static const signed char step_x[] = {0, 0, -1, 1};
static const signed char step_y[] = {1, -1, 0, 0};

static u8 slow; /* slimes move in every other frame */

/* Whether a and b are less than `distance` apart; differences wrap around, so one of them may be below zero. */
#define IS_NEAR(a, b, distance) ((u8)((a) - (b) + (distance) - 1) < 2 * (distance) - 1)

static u8 cell_at(u8 x, u8 y) {
    return (y >> 4) * 10 + (x >> 4);
}

static void end_game(u8 how) {
    mode = how;
}

static void hurt(void) {
    safe_frames = SAFE_FRAMES;
    status_changed();
    if (--health == 0) {
        dead = 1;
        end_game(MODE_DEAD);
    }
}

/* ---- the player ---- */

/* Doors open to the key, and the lamp is lit by touching it. */
static u8 is_blocked(u8 x, u8 y) {
    u8 cell = cell_at(x, y), kind = cells[cell];
    if (kind < CELL_ROCK)
        return 0;
    if (kind == CELL_DOOR && has_key) {
        cells[cell] = CELL_OPENED;
        cell_changed(cell);
        door_open = 1;
        set_compass();
    } else if (kind == CELL_LAMP) {
        cells[cell] = CELL_LIT;
        cell_changed(cell);
        goal_reached = 1;
        end_game(MODE_WON);
    }
    return 1;
}

static void leave_screen(void) {
    screen_x += step_x[facing];
    screen_y += step_y[facing];
    switch (facing) {
    case 0: player_y = 0; break;
    case 1: player_y = 112; break;
    case 2: player_x = 144; break;
    default: player_x = 0;
    }
    enter_screen();
}

/* The feet, 8 x 8 pixels in the lower middle of the picture, are what meets walls. */
static void walk(void) {
    u8 x = player_x, y = player_y;
    switch (facing) {
    case 0:
        if (y == 112)
            leave_screen();
        else if (!is_blocked(x + 4, y + 17) && !is_blocked(x + 11, y + 17))
            player_y = y + SPEED;
        break;
    case 1:
        if (y == 0)
            leave_screen();
        else if (!is_blocked(x + 4, y + 6) && !is_blocked(x + 11, y + 6))
            player_y = y - SPEED;
        break;
    case 2:
        if (x == 0)
            leave_screen();
        else if (!is_blocked(x + 2, y + 8) && !is_blocked(x + 2, y + 15))
            player_x = x - SPEED;
        break;
    default:
        if (x == 144)
            leave_screen();
        else if (!is_blocked(x + 13, y + 8) && !is_blocked(x + 13, y + 15))
            player_x = x + SPEED;
    }
}

static void fall(void) {
    if (cells[cell_at(player_x + 8, player_y + 12)] == CELL_PIT) {
        player_x = entry_x;
        player_y = entry_y;
        hurt();
    }
}

static void cut(u8 x, u8 y) {
    u8 cell;
    if (x >= 160 || y >= 128)
        return;
    cell = cell_at(x, y);
    if (cells[cell] == CELL_BUSH) {
        cells[cell] = CELL_GRASS;
        cell_changed(cell);
        ++bushes_cut;
    }
}

/* Whoever stands between two bushes cuts both, and can pass. */
static void strike(void) {
    u8 i, x = player_x, y = player_y;
    if (step_x[facing]) {
        x += step_x[facing] > 0 ? REACH : -REACH;
        cut(x + 8, y + 8);
        cut(x + 8, y + 15);
    } else {
        y += step_y[facing] > 0 ? REACH : -REACH;
        cut(x + 4, y + 12);
        cut(x + 11, y + 12);
    }
    for (i = 0; i != ENEMIES; ++i)
        if (enemy_kind[i] && IS_NEAR(x, enemy_x[i], 14) && IS_NEAR(y, enemy_y[i], 14)) {
            enemy_kind[i] = 0;
            --enemies_left[screen_y * 4 + screen_x];
            ++enemies_beaten;
            set_out_sprites();
        }
}

static void act(void) {
    u8 way, buttons = read_buttons();
    if (sword_frames) {
        --sword_frames;
        return;
    }
    if (buttons & BUTTON_A) {
        sword_frames = SWORD_FRAMES - 1;
        strike();
        return;
    }
    if (!(buttons & (UP | DOWN | LEFT | RIGHT)))
        return;
    way = buttons & DOWN ? 0 : buttons & UP ? 1 : buttons & LEFT ? 2 : 3;
    facing = way;
    walk();
}

static void look_ahead(void) {
    u8 x = player_x + 8, y = player_y + 12;
    switch (facing) {
    case 0: y += REACH; break;
    case 1: y -= REACH; break;
    case 2: x -= REACH; break;
    default: x += REACH;
    }
    ahead = x < 160 && y < 128 ? cells[cell_at(x, y)] : 0xFF;
}

static void take(u8 i) {
    u8 kind = pickup_kind[i];
    pickup_kind[i] = 0;
    set_out_sprites();
    if (kind == 3) {
        has_key = 1;
        set_compass();
        return;
    }
    treasures[(screen_y * 4 + screen_x) * 2 + i] = 0xFF;
    if (kind == 2 && health < HEARTS)
        ++health;
    else if (gems < 99)
        ++gems;
    status_changed();
}

#define TOUCHES(thing, i, distance) \
    (thing##_kind[i] && IS_NEAR(player_x, thing##_x[i], distance) && IS_NEAR(player_y, thing##_y[i], distance))

static void pick_up(void) {
    if (TOUCHES(pickup, 0, 12))
        take(0);
    if (TOUCHES(pickup, 1, 12))
        take(1);
    if (TOUCHES(pickup, 2, 12))
        take(2);
}

/* ---- enemies: they walk from cell to cell, so that walls are looked at only where they choose a way ---- */

static void choose_way(u8 i) {
    u8 draw = random_byte(), way = enemy_way[i] & 3, x, y;
    if (enemy_kind[i] == 2 && draw & 0x80) { /* a beetle comes after the player half of the time */
        if (draw & 0x40)
            way = player_x < enemy_x[i] ? 2 : 3;
        else
            way = player_y < enemy_y[i] ? 1 : 0;
    } else if (!(draw & 0x30)) {
        way = draw & 3;
    }
    x = enemy_x[i] + (step_x[way] << 4);
    y = enemy_y[i] + (step_y[way] << 4);
    /* The outer cells stay free for those who come in. */
    if (x == 0 || x >= 144 || y == 0 || y >= 112 || cells[cell_at(x, y)] > CELL_PATH)
        way = 4 + (draw & 3); /* stands still until the next frame, then looks that way */
    enemy_way[i] = way;
}

#define MOVE_ENEMY(i)                                    \
    if (enemy_kind[i] && (slow || enemy_kind[i] != 1)) { \
        if (!((enemy_x[i] | enemy_y[i]) & 15))           \
            choose_way(i);                               \
        switch (enemy_way[i]) {                          \
        case 0: ++enemy_y[i]; break;                     \
        case 1: --enemy_y[i]; break;                     \
        case 2: --enemy_x[i]; break;                     \
        case 3: ++enemy_x[i]; break;                     \
        }                                                \
    }

static void move_enemies(void) {
    slow ^= 1;
    MOVE_ENEMY(0)
    MOVE_ENEMY(1)
}

static void meet_enemies(void) {
    if (safe_frames) {
        --safe_frames;
        return;
    }
    if (TOUCHES(enemy, 0, 11) || TOUCHES(enemy, 1, 11))
        hurt();
}

/* ---- the game ---- */

void new_game(void) {
    u8 i;
    for (i = 8; i != 80; ++i) /* C108 to C14F: everything but how the game was started */
        BYTES_AT(0xC100)[i] = 0;
    frame_count = 0;
    health = HEARTS;
    slow = 0;
    scatter_world();
    mode = MODE_PLAY;
    enter_screen();
}

void play_frame(void) {
    act();
    if (mode != MODE_PLAY)
        return;
    fall();
    look_ahead();
    count_steps();
    pick_up();
    move_enemies();
    meet_enemies();
    place_sprites();
    ++frame_count;
}
