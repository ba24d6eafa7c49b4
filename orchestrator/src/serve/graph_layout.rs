//! A layered layout of a graph: what depends on something is below it, boxes do not overlap, and long
//! edges run between the boxes.

use std::collections::BTreeSet;

/// The width of a box.
pub(crate) const BOX_WIDTH: f64 = 184.0;
/// The height of a box.
pub(crate) const BOX_HEIGHT: f64 = 62.0;
/// The distance between things of a row.
const GAP: f64 = 20.0;
/// The distance between rows.
const ROW_GAP: f64 = 44.0;
/// The distance to the border.
const MARGIN: f64 = 8.0;
/// Maximum number of boxes in a row.
const MAX_PER_ROW: usize = 6;
/// Maximum number of points at which long edges pass rows; with more, they are straight.
const MAX_PASSES: usize = 2000;
/// How often rows are ordered and moved.
const SWEEPS: usize = 8;

/// A layout.
#[derive(Clone, Debug)]
pub(crate) struct GraphLayout {
    /// The width.
    pub width: f64,
    /// The height.
    pub height: f64,
    /// The upper left corner of each box.
    pub boxes: Vec<(f64, f64)>,
    /// The edges.
    pub edges: Vec<GraphEdge>,
}

/// An edge.
#[derive(Clone, Debug)]
pub(crate) struct GraphEdge {
    /// The index of the upper box.
    pub from: usize,
    /// The index of the lower box.
    pub to: usize,
    /// Where it starts, where it enters and leaves each row that it passes, and where it ends.
    pub points: Vec<(f64, f64)>,
}

/// A box, or the point at which an edge passes a row.
#[derive(Clone, Debug, Default)]
struct Item {
    width: f64,
    center: f64,
    above: Vec<usize>,
    below: Vec<usize>,
}

/// Lays out boxes; each edge goes from a box to one that depends on it. An edge that closes a cycle
/// goes upwards.
pub(crate) fn lay_out(count: usize, edges: &[(usize, usize)]) -> GraphLayout {
    let edges: BTreeSet<(usize, usize)> =
        edges.iter().copied().filter(|(a, b)| a != b && *a < count && *b < count).collect();
    let row_of = assign_rows(count, &edges);
    let row_count = row_of.iter().max().map_or(0, |last| last + 1);
    let mut rows = vec![Vec::new(); row_count];
    let mut items = vec![Item { width: BOX_WIDTH, ..Item::default() }; count];
    (0..count).for_each(|index| rows[row_of[index]].push(index));
    let passes = |(a, b): &(usize, usize)| row_of[*b].saturating_sub(row_of[*a] + 1);
    let is_bent = edges.iter().map(passes).sum::<usize>() <= MAX_PASSES;
    let mut paths = Vec::new();
    for &(from, to) in &edges {
        let mut path = vec![from];
        if is_bent {
            for row in rows.iter_mut().take(row_of[to]).skip(row_of[from] + 1) {
                path.push(items.len());
                row.push(items.len());
                items.push(Item::default());
            }
        }
        path.push(to);
        for pair in path.windows(2).filter(|_| row_of[from] < row_of[to]) {
            items[pair[0]].below.push(pair[1]);
            items[pair[1]].above.push(pair[0]);
        }
        paths.push((from, to, path));
    }
    order_rows(&items, &mut rows);
    place(&mut items, &rows);
    let left = |item: &Item| item.center - item.width / 2.0;
    let min = items.iter().map(left).fold(f64::INFINITY, f64::min);
    items.iter_mut().for_each(|item| item.center += MARGIN - min);
    let right = items.iter().map(|item| item.center + item.width / 2.0).fold(0.0, f64::max);
    let top = |row: usize| MARGIN + number(row) * (BOX_HEIGHT + ROW_GAP);
    let edge = |(from, to, path): (usize, usize, Vec<usize>)| {
        let mut points = vec![(items[from].center, top(row_of[from]) + BOX_HEIGHT)];
        for (row, item) in (row_of[from] + 1..).zip(&path[1..path.len() - 1]) {
            let x = items[*item].center;
            points.extend([(x, top(row)), (x, top(row) + BOX_HEIGHT)]);
        }
        points.push((items[to].center, top(row_of[to])));
        GraphEdge { from, to, points }
    };
    GraphLayout {
        width: right + MARGIN,
        height: 2.0 * MARGIN + number(row_count) * (BOX_HEIGHT + ROW_GAP) - ROW_GAP,
        edges: paths.into_iter().map(edge).collect(),
        boxes: (0..count).map(|index| (left(&items[index]), top(row_of[index]))).collect(),
    }
}

fn number(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}

/// Returns the row of each box: below all that it depends on, in the first row with space.
fn assign_rows(count: usize, edges: &BTreeSet<(usize, usize)>) -> Vec<usize> {
    let mut needs = vec![Vec::new(); count];
    edges.iter().for_each(|(a, b)| needs[*b].push(*a));
    let mut rows: Vec<Option<usize>> = vec![None; count];
    let mut lengths: Vec<usize> = Vec::new();
    for _ in 0..count {
        let is_open = |index: &usize| rows[*index].is_none();
        let is_next = |index: &usize| needs[*index].iter().all(|need| rows[*need].is_some());
        let next = (0..count).filter(is_open).find(is_next);
        // Only in a cycle each open box depends on another one.
        let Some(index) = next.or_else(|| (0..count).find(is_open)) else { break };
        let above = needs[index].iter().filter_map(|need| rows[*need]).max();
        let mut row = above.map_or(0, |above| above + 1);
        while lengths.get(row).is_some_and(|length| *length >= MAX_PER_ROW) {
            row += 1;
        }
        lengths.resize(lengths.len().max(row + 1), 0);
        lengths[row] += 1;
        rows[index] = Some(row);
    }
    rows.into_iter().map(Option::unwrap_or_default).collect()
}

/// Orders each row by the means of its neighbours' positions, so that few edges cross.
fn order_rows(items: &[Item], rows: &mut [Vec<usize>]) {
    let mut positions = vec![0.0; items.len()];
    let set = |row: &[usize], positions: &mut Vec<f64>| {
        let middle = number(row.len()) / 2.0;
        row.iter().enumerate().for_each(|(at, item)| positions[*item] = number(at) - middle);
    };
    rows.iter().for_each(|row| set(row, &mut positions));
    for sweep in 0..SWEEPS {
        for index in indices(rows.len(), sweep) {
            let key = |item: &usize| mean(neighbours(&items[*item], sweep), &positions);
            let mut keyed: Vec<(f64, usize)> = rows[index]
                .iter()
                .map(|item| (key(item).unwrap_or(positions[*item]), *item))
                .collect();
            keyed.sort_by(|one, other| one.0.total_cmp(&other.0));
            rows[index] = keyed.into_iter().map(|(_, item)| item).collect();
            set(&rows[index], &mut positions);
        }
    }
}

/// The rows from the top in even sweeps, from the bottom in odd ones.
fn indices(count: usize, sweep: usize) -> Vec<usize> {
    let all = 0..count;
    if sweep.is_multiple_of(2) { all.collect() } else { all.rev().collect() }
}

fn neighbours(item: &Item, sweep: usize) -> &[usize] {
    if sweep.is_multiple_of(2) { &item.above } else { &item.below }
}

fn mean(of: &[usize], values: &[f64]) -> Option<f64> {
    (!of.is_empty()).then(|| of.iter().map(|it| values[*it]).sum::<f64>() / number(of.len()))
}

/// Places the items of each row near their neighbours.
fn place(items: &mut [Item], rows: &[Vec<usize>]) {
    let mut centers = vec![0.0; items.len()];
    for sweep in 0..=SWEEPS {
        for index in indices(rows.len(), sweep) {
            let row = &rows[index];
            let wanted = row
                .iter()
                .map(|it| mean(neighbours(&items[*it], sweep), &centers).unwrap_or(centers[*it]));
            let wanted: Vec<f64> = wanted.collect();
            let widths: Vec<f64> = row.iter().map(|it| items[*it].width).collect();
            for (item, center) in row.iter().zip(keep_apart(&wanted, &widths)) {
                centers[*item] = center;
            }
        }
    }
    items.iter_mut().zip(centers).for_each(|(item, center)| item.center = center);
}

/// Returns the centers nearest to the wanted ones (by the sum of squares) that keep the order and the
/// gaps.
fn keep_apart(wanted: &[f64], widths: &[f64]) -> Vec<f64> {
    let mut offsets = Vec::with_capacity(widths.len());
    let mut offset = 0.0;
    for (index, width) in widths.iter().enumerate() {
        if index > 0 {
            offset += f64::midpoint(widths[index - 1], *width) + GAP;
        }
        offsets.push(offset);
    }
    // Without the offsets, the centers must not decrease: groups that do get their mean.
    let mut groups: Vec<(f64, usize)> = Vec::new();
    for (center, offset) in wanted.iter().zip(&offsets) {
        groups.push((center - offset, 1));
        while let [.., (before, size), (last, more)] = groups[..]
            && before > last
        {
            let total = size + more;
            let mean = (before * number(size) + last * number(more)) / number(total);
            groups.truncate(groups.len() - 2);
            groups.push((mean, total));
        }
    }
    let means = groups.into_iter().flat_map(|(mean, size)| std::iter::repeat_n(mean, size));
    means.zip(offsets).map(|(mean, offset)| mean + offset).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn overlaps(one: (f64, f64), other: (f64, f64)) -> bool {
        (one.0 - other.0).abs() < BOX_WIDTH && (one.1 - other.1).abs() < BOX_HEIGHT
    }

    fn assert_apart(layout: &GraphLayout) {
        for (index, one) in layout.boxes.iter().enumerate() {
            assert!(one.0 >= 0.0 && one.0 + BOX_WIDTH <= layout.width + 0.01, "{one:?}");
            assert!(one.1 >= 0.0 && one.1 + BOX_HEIGHT <= layout.height + 0.01, "{one:?}");
            for other in &layout.boxes[..index] {
                assert!(!overlaps(*one, *other), "{one:?} {other:?}");
            }
        }
    }

    proptest! {
        /// In a graph without cycles, edges go downwards and pass no box, and no boxes overlap.
        #[test]
        fn boxes_of_a_random_graph_are_apart_and_edges_go_downwards_between_them(
            count in 1usize..60,
            pairs in proptest::collection::vec((0usize..60, 0usize..60), 0..90),
        ) {
            let edges: Vec<(usize, usize)> = pairs
                .into_iter()
                .filter(|(a, b)| a < b && *b < count)
                .collect();
            let layout = lay_out(count, &edges);
            assert_apart(&layout);
            let wanted: BTreeSet<(usize, usize)> = edges.into_iter().collect();
            let drawn: BTreeSet<_> = layout.edges.iter().map(|it| (it.from, it.to)).collect();
            prop_assert_eq!(drawn, wanted);
            for edge in &layout.edges {
                let downwards = edge.points.windows(2).all(|pair| pair[0].1 < pair[1].1);
                prop_assert!(downwards, "{:?}", edge);
                let (from, to) = (layout.boxes[edge.from], layout.boxes[edge.to]);
                let (first, last) = (edge.points[0], edge.points[edge.points.len() - 1]);
                prop_assert_eq!(first, (from.0 + BOX_WIDTH / 2.0, from.1 + BOX_HEIGHT));
                prop_assert_eq!(last, (to.0 + BOX_WIDTH / 2.0, to.1));
                for (x, y) in &edge.points[1..edge.points.len() - 1] {
                    let is_inside = |it: &&(f64, f64)| {
                        it.0 < *x && *x < it.0 + BOX_WIDTH && it.1 < *y && *y < it.1 + BOX_HEIGHT
                    };
                    prop_assert!(layout.boxes.iter().find(is_inside).is_none());
                }
            }
        }

        #[test]
        fn any_edges_are_laid_out_and_cycles_end(
            count in 1usize..40,
            edges in proptest::collection::vec((0usize..45, 0usize..45), 0..120),
        ) {
            assert_apart(&lay_out(count, &edges));
        }
    }

    #[test]
    fn a_hundred_tasks_and_all_their_edges_fit() {
        let all = (0..100).flat_map(|b| (0..b).map(move |a| (a, b)));
        let layout = lay_out(100, &all.collect::<Vec<_>>());
        assert_apart(&layout);
        assert_eq!(layout.edges.len(), 4950);
        let wide = lay_out(100, &[]);
        assert_apart(&wide);
        assert!(wide.width < 1300.0, "{}", wide.width);
        let one = lay_out(1, &[]);
        assert_eq!(one.boxes, [(MARGIN, MARGIN)]);
        assert!((one.width - BOX_WIDTH - 2.0 * MARGIN).abs() < 0.01, "{}", one.width);
    }

    #[test]
    fn a_tree_is_centered_below_its_root() {
        let layout = lay_out(4, &[(0, 1), (0, 2), (0, 3)]);
        assert!((layout.boxes[0].0 - layout.boxes[2].0).abs() < 0.01, "{:?}", layout.boxes);
    }
}
