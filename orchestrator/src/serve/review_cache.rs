//! The reviews that are open in pages, so that the parts of one page come from one reading of the
//! work. A review that is missing here is opened again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use base::failure::{Failure, Result};
use base::id::Id;
use studio_core::review::Review;
use studio_core::review::since::EarlierState;
use studio_core::review::syntax::SyntaxHighlighter;

use crate::commands::context::CommandContext;
use crate::commands::review;

/// The number of reviews that are kept.
const MAX_REVIEWS: usize = 4;

/// A review that several requests use.
pub(crate) type SharedReview = Arc<Mutex<Review>>;

/// What distinguishes reviews of the same work.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ReviewKey {
    id: Id,
    since: Option<EarlierState>,
    head: String,
}

/// The newest reviews.
#[derive(Default)]
pub(crate) struct ReviewCache {
    reviews: Mutex<VecDeque<(ReviewKey, SharedReview)>>,
    highlighter: OnceLock<SyntaxHighlighter>,
}

impl ReviewCache {
    /// Opens the review of the current work.
    pub(crate) fn open(
        &self,
        context: &CommandContext,
        id: &Id,
        since: Option<EarlierState>,
    ) -> Result<SharedReview> {
        let review = review::open(context, &context.view(id)?, since)?;
        let key = ReviewKey { id: id.clone(), since, head: review.head.clone() };
        let review = Arc::new(Mutex::new(review));
        let mut reviews = self.reviews.lock().unwrap_or_else(PoisonError::into_inner);
        reviews.retain(|(other, _)| *other != key);
        reviews.push_front((key, Arc::clone(&review)));
        reviews.truncate(MAX_REVIEWS);
        Ok(review)
    }

    /// Returns the review of a page, with the decisions and comments of now.
    pub(crate) fn of_page(
        &self,
        context: &CommandContext,
        id: &Id,
        since: Option<EarlierState>,
        head: &str,
    ) -> Result<SharedReview> {
        let key = ReviewKey { id: id.clone(), since, head: head.to_owned() };
        let found = {
            let reviews = self.reviews.lock().unwrap_or_else(PoisonError::into_inner);
            reviews.iter().find(|(other, _)| *other == key).map(|(_, review)| Arc::clone(review))
        };
        let review = match found {
            Some(review) => review,
            None => self.open(context, id, since)?,
        };
        {
            let mut review = review.lock().unwrap_or_else(PoisonError::into_inner);
            if review.head != head {
                return Err(Failure::conflict(format!("the work of `{id}` has changed"))
                    .because("the page shows an earlier state")
                    .hint("load the page again"));
            }
            review.reload_changed()?;
        }
        Ok(review)
    }

    /// Returns the syntax definitions, which are loaded for the first lines.
    pub(crate) fn highlighter(&self) -> &SyntaxHighlighter {
        self.highlighter.get_or_init(SyntaxHighlighter::load)
    }
}
