/* What is where: drawn from the seed when a game begins, and set out when the player comes to a screen. */
#include "draw.h"
#include "generated.h"
#include "play.h"

#define SCREEN (screen_y * 4 + screen_x)
#define NOTHING 0xFF
#define IS_HEART 0x80

/* A 16-bit xorshift (7, 9, 8): every state but zero comes once in 65,535 steps. */
u8 random_byte(void) {
    u16 x = rng_state;
    x ^= x << 7;
    x ^= x >> 9;
    x ^= x << 8;
    rng_state = x;
    return (u8)x;
}

u8 random_below(u8 limit) {
    return (u8)(((u16)random_byte() * limit) >> 8);
}

static u8 free_cell(u8 screen) {
    const u8 *map = world + screen * 80;
    u8 cell, column;
    do {
        cell = 10 + random_below(60);
        column = cell % 10;
    } while (column == 0 || column == 9 || map[cell] > CELL_PATH);
    return cell;
}

static u8 x_of(u8 cell) {
    return (cell % 10) << 4;
}

static u8 y_of(u8 cell) {
    return (cell / 10) << 4;
}

/* Start, key, enemies and treasures of a new game. */
void scatter_world(void) {
    u8 screen, cell, i;
    rng_state = rng_seed ? rng_seed : 1;
    for (i = 0; i != 16; ++i) /* seeds that differ in one bit shall not begin alike */
        random_byte();
    key_place = random_below(KEY_PLACES);
    for (screen = 0; screen != 16; ++screen) {
        enemies_left[screen] = screen == GOAL_SCREEN ? 0 : random_below(ENEMIES + 1);
        for (i = 0; i != 2; ++i) {
            u8 kind = random_byte();
            cell = free_cell(screen);
            treasures[screen * 2 + i] = kind < 96 ? NOTHING : kind < 200 ? cell : cell | IS_HEART;
        }
    }
    screen = start_screens[random_below(START_SCREENS)];
    screen_x = screen & 3;
    screen_y = screen >> 2;
    cell = free_cell(screen);
    player_x = x_of(cell);
    player_y = y_of(cell);
}

static u8 counted_cell;

/* How many cells are left, where the player has come to another one. */
void count_steps(void) {
    u8 cell = ((player_y + 12) >> 4) * 10 + ((player_x + 8) >> 4), steps;
    u16 place;
    if (cell == counted_cell)
        return;
    counted_cell = cell;
    place = (u16)SCREEN * 80 + cell;
    if (has_key)
        steps = steps_to_goal[place];
    else
        steps = steps_to_key[key_place * 1280 + place] + key_steps[key_place];
    if (steps != steps_left) {
        steps_left = steps;
        status_changed();
    }
}

/* The compass: the next thing to find, and how many screens are left of the whole way. */
void set_compass(void) {
    u8 screen = SCREEN, target;
    screens_left = screens_to_goal[screen];
    if (!has_key) {
        target = key_screens[key_place];
        target_x = x_of(key_cells[key_place]);
        target_y = y_of(key_cells[key_place]);
        screens_left = screens_to_key[key_place * 16 + screen] + screens_to_goal[target];
    } else if (!door_open) {
        target = DOOR_SCREEN;
        target_x = x_of(DOOR_CELL);
        target_y = y_of(DOOR_CELL);
    } else {
        target = GOAL_SCREEN;
        target_x = x_of(GOAL_CELL);
        target_y = y_of(GOAL_CELL);
    }
    target_screen_x = target & 3;
    target_screen_y = target >> 2;
    counted_cell = 0xFF;
    count_steps();
    status_changed();
}

static u8 apart(u8 a, u8 b) {
    return a > b ? a - b : b - a;
}

static void set_out_enemies(u8 screen) {
    u8 i, cell, tries;
    for (i = 0; i != ENEMIES; ++i) {
        enemy_kind[i] = 0;
        if (i >= enemies_left[screen])
            continue;
        for (tries = 0; tries != 8; ++tries) {
            cell = free_cell(screen);
            enemy_x[i] = x_of(cell);
            enemy_y[i] = y_of(cell);
            if (apart(enemy_x[i], player_x) + apart(enemy_y[i], player_y) >= 64) {
                enemy_kind[i] = 1 + (random_byte() & 1);
                enemy_way[i] = random_byte() & 3;
                break;
            }
        }
    }
}

static void set_out_pickups(u8 screen) {
    u8 i, treasure;
    for (i = 0; i != 2; ++i) {
        treasure = treasures[screen * 2 + i];
        pickup_kind[i] = treasure == NOTHING ? 0 : treasure & IS_HEART ? 2 : 1;
        treasure = pickup_kind[i] ? treasure & 0x7F : 0;
        pickup_x[i] = x_of(treasure);
        pickup_y[i] = y_of(treasure);
    }
    pickup_kind[2] = !has_key && screen == key_screens[key_place] ? 3 : 0;
    pickup_x[2] = x_of(key_cells[key_place]);
    pickup_y[2] = y_of(key_cells[key_place]);
}

static void clear_bush(u8 x, u8 y) {
    u8 cell = (y >> 4) * 10 + (x >> 4);
    if (cells[cell] == CELL_BUSH)
        cells[cell] = CELL_GRASS;
}

/* The player has come to screen_x, screen_y: takes some frames, with the picture off. */
void enter_screen(void) {
    u8 screen = SCREEN, i;
    const u8 *map = world + screen * 80;
    u16 bit = 1 << screen;
    begin_drawing();
    for (i = 0; i != 80; ++i)
        cells[i] = map[i];
    if (door_open && screen == DOOR_SCREEN)
        cells[DOOR_CELL] = CELL_OPENED;
    clear_bush(player_x + 4, player_y + 8); /* nobody shall come in and stand in a bush */
    clear_bush(player_x + 11, player_y + 15);
    if (!(visited & bit)) {
        visited |= bit;
        ++screens_visited;
    }
    entry_x = player_x;
    entry_y = player_y;
    set_out_enemies(screen);
    set_out_pickups(screen);
    set_compass();
    draw_screen();
    set_out_sprites();
    place_sprites();
    end_drawing();
}
