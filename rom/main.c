/* Lantern Isle: find the key, open the door, light the lamp. */
#include "draw.h"
#include "generated.h"
#include "play.h"

#define LAST_LOOK 30 /* frames in which the end is seen as it happened */
#define PAUSE 240    /* frames after that before the game begins anew */

static void title(void) {
    u16 waited = 0;
    mode = MODE_TITLE;
    draw_title();
    do {
        wait_frame();
        ++waited;
    } while (!start_request && !(read_buttons() & BUTTON_START));
    start_request = 0;
    if (!rng_seed)
        rng_seed = waited;
}

static void ending(void) {
    u8 waited;
    for (waited = 0; waited != LAST_LOOK; ++waited) {
        wait_frame();
        show_changes();
    }
    begin_drawing();
    draw_screen();
    if (mode == MODE_WON)
        draw_words("THE LAMP IS LIT", 2, 4);
    else
        draw_words("YOU FELL", 6, 4);
    end_drawing();
    for (waited = 0; waited != PAUSE && !(waited > 30 && read_buttons() & BUTTON_START); ++waited)
        wait_frame();
    rng_seed = rng_state;
}

void main(void) {
    set_up_pictures();
    title();
    for (;;) {
        new_game();
        while (mode == MODE_PLAY) {
            wait_frame();
            show_changes();
            play_frame();
            ready = 1;
        }
        ready = 0;
        ending();
    }
}
