use super::*;
use crate::advise::{Cents, SetFigures, Years};
use weir_model::{Bytes, Nanos};

fn window(second: u64, rate: f64) -> Window {
    Window {
        start: Nanos::secs(second),
        rate,
        work: 0.0,
        mean: Nanos::millis(if rate > 0.0 { 5 } else { 0 }),
        p99: Nanos::millis(if rate > 0.0 { 400 } else { 0 }),
        moved: Bytes::mib(second),
        loads: vec![0.5],
        shares: vec![0.25],
        devices: Vec::new(),
    }
}

/// Returns all numeric values of an attribute in a document.
fn attribute(svg: &str, name: &str) -> Vec<f64> {
    let name = format!(" {name}=\"");
    let values = svg.split(&name).skip(1).filter_map(|rest| rest.split('"').next());
    values.filter_map(|value| value.parse().ok()).collect()
}

fn assert_nothing_is_clipped(svg: &str) {
    let height = attribute(svg, "height")[0];
    let mut texts = 0;
    for text in svg.split("<text ").skip(1) {
        let words = text.split('>').nth(1).and_then(|rest| rest.split('<').next()).expect("words");
        let number = |name| attribute(&format!(" {text}"), name)[0];
        let (x, y, width) = (number("x"), number("y"), text::width(words, number("font-size")));
        let left = match text {
            text if text.contains("\"middle\"") => x - width / 2.0,
            text if text.contains("\"end\"") => x - width,
            _ => x,
        };
        assert!(left >= 0.0 && left + width <= 800.0, "{words:?} is cut: {left} to {}", left + width);
        assert!((8.0..height).contains(&y), "{words:?} is cut: {y} of {height}");
        texts += 1;
    }
    assert!(texts > 0);
}

#[test]
fn line_is_interrupted_in_windows_without_replies() {
    let windows = [10.0, 20.0, 0.0, 20.0, 10.0].iter().enumerate();
    let windows: Vec<_> = windows.map(|(at, rate)| window(at as u64, *rate)).collect();
    let outcome = Outcome { windows, ..Outcome::default() };
    let responses = panel("", Unit::Nanos, &[outcome], &[&|w| (w.rate > 0.0).then_some(w.mean.0 as f64)]);
    let lines: Vec<_> =
        responses.marks.iter().map(|mark| matches!(mark, Mark::Line(_, at) if at.len() == 2)).collect();
    assert_eq!(lines, [true, true], "two lines of two points, none at 0");
}

#[test]
fn long_titles_labels_and_legends_are_not_clipped() {
    let long = "a-trace-with-a-very-long-name-".repeat(9);
    let named = |policy: &str| Outcome {
        policy: policy.into(),
        windows: (0..5).map(|at| window(at, 1e7 * at as f64)).collect(),
        ..Outcome::default()
    };
    let outcomes = [named("adaptive"), named(&long), named("磁盘 & <b>"), named("stripe")];
    let drawn = svg(&long, &outcomes);
    assert_nothing_is_clipped(&drawn);
    assert!(drawn.contains("磁盘 &amp; &lt;b&gt;"), "{drawn}");
    let compared = RatioRow { quantity: long.clone(), published: Some(0.001), measured: 900.0 };
    let none = RatioRow { quantity: "nothing".into(), published: None, measured: f64::NAN };
    let drawn = ratios_svg(&long, &[compared, none]);
    assert_nothing_is_clipped(&drawn);
    assert!(!drawn.contains("NaN") && !drawn.contains("nothing"), "{drawn}");
}

#[test]
fn overloaded_sets_are_drawn_apart() {
    let judged = |price, mean| SetFigures {
        price: Cents(price),
        mean: Nanos(mean),
        p99: Nanos(mean),
        life: Years::UNLIMITED,
    };
    let shown = |name: &str, price, simulated, keeps_up| PlottedSet {
        name: name.into(),
        predicted: judged(price, 2_000_000),
        simulated: Some(judged(price, simulated)),
        keeps_up,
        is_on_frontier: keeps_up,
        is_pick: keeps_up,
    };
    let sets = vec![shown("disk", 5_000, 0, false), shown("ssd + disk", 90_000, 1_000_000, true)];
    let drawn = Frontier { currency: "EUR".into(), sets }.svg("t");
    assert_nothing_is_clipped(&drawn);
    // One cross in each panel of response times and one in the legend; in the panel of lives, the top would
    // be the best. One ring for the other set; the legend has two.
    assert_eq!(drawn.matches("<path ").count(), 3, "{drawn}");
    assert_eq!(drawn.matches("r=\"7\"").count(), 3 + 2, "{drawn}");
    assert!(!drawn.contains(" ns<"), "no axis goes down to nothing:\n{drawn}");
}

#[test]
fn amplification_has_a_line_for_each_upper_segment() {
    let line = |name: &str, factor: f64| AmplificationLine {
        name: name.into(),
        points: (1..8).map(|power| (Bytes::mib(1 << power), factor * f64::from(power))).collect(),
    };
    let panel = |name: &str| AmplificationPanel {
        name: name.into(),
        lines: vec![line("segments of 2 MiB", 1.0), line("segments of 8 MiB", 0.5)],
    };
    let drawn = amplification_svg("a load", &[panel("capacity ratio 90 %"), panel("capacity ratio 70 %")]);
    assert_nothing_is_clipped(&drawn);
    assert_eq!(drawn.matches("<circle ").count(), 28, "{drawn}");
    assert!(drawn.contains("128 MiB") && drawn.contains("segments of 8 MiB"), "{drawn}");
    assert_nothing_is_clipped(&amplification_svg("nothing", &[]));
    let empty = AmplificationPanel { name: "empty".into(), lines: Vec::new() };
    assert!(!amplification_svg("nothing", &[empty]).contains("NaN"));
}
